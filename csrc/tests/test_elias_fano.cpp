#include <algorithm>
#include <bit>
#include <random>
#include <vector>

#include "check.h"
#include "dart/bit_select.h"
#include "dart/elias_fano.h"

using dart::EliasFano;
using dart::EliasFanoEncoder;
using dart::EliasFanoLayout;

namespace {

using Values = std::vector<std::uint64_t>;

Values encode(const EliasFanoLayout& layout, const Values& values) {
  constexpr std::uint64_t kOffset = 24;
  dart::MemoryBytes bytes;
  bytes.resize(kOffset + 8 * layout.words);
  EliasFanoEncoder encoder(layout, bytes, kOffset);
  for (const std::uint64_t value : values) encoder.add(value);
  encoder.finish();
  Values words(layout.words);
  bytes.read_at(kOffset, std::as_writable_bytes(std::span(words)));
  return words;
}

void check_reads(const Values& values, std::uint64_t universe, bool is_searched) {
  const EliasFanoLayout layout(values.size(), universe, is_searched);
  const Values words = encode(layout, values);
  const EliasFano sequence(words.data(), layout);
  CHECK(sequence.size() == values.size());
  CHECK(sequence.is_consistent(false));
  const bool is_distinct = std::adjacent_find(values.begin(), values.end()) == values.end();
  CHECK(sequence.is_consistent(true) == is_distinct);
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(sequence[i] == values[i]);
  for (std::size_t start = 0; start < values.size(); start += 1 + values.size() / 7) {
    EliasFano::Cursor cursor = sequence.cursor(start);
    for (std::size_t i = start; i < values.size(); ++i) {
      if (i > start) cursor.next();
      CHECK(cursor.value() == values[i]);
    }
  }
}

// Every value there is, its neighbours, and the ends, in several ranges.
void check_finds(const Values& values, std::uint64_t universe) {
  const EliasFanoLayout layout(values.size(), universe, true);
  const Values words = encode(layout, values);
  const EliasFano sequence(words.data(), layout);
  Values wanted{0, 1, universe - 1, universe, universe + 1000, ~std::uint64_t{0}};
  for (const std::uint64_t value : values) {
    for (const std::uint64_t near : {value - 1, value, value + 1}) wanted.push_back(near);
  }
  std::sort(wanted.begin(), wanted.end());
  const std::size_t n = values.size();
  for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, n},
                                   {n / 3, n - n / 3},
                                   {n / 2, std::min(n, n / 2 + 3)},
                                   {n - 1, n},
                                   {0, 1}}) {
    if (begin == end) continue;
    EliasFano::Finder together = sequence.finder(sequence.cursor(begin), end);
    for (const std::uint64_t value : wanted) {
      const auto first = values.begin() + static_cast<std::ptrdiff_t>(begin);
      const auto last = values.begin() + static_cast<std::ptrdiff_t>(end);
      const auto at = std::lower_bound(first, last, value);
      const std::uint64_t expected = at != last && *at == value
                                         ? static_cast<std::uint64_t>(at - values.begin())
                                         : EliasFano::kNotFound;
      CHECK(sequence.finder(sequence.cursor(begin), end).find(value) == expected);
      CHECK(together.find(value) == expected);
    }
  }
}

Values random_values(std::mt19937_64& random, std::size_t count, std::uint64_t universe,
                     bool is_distinct) {
  Values values(count);
  for (std::uint64_t& value : values) value = random() % universe;
  std::sort(values.begin(), values.end());
  if (is_distinct) values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

// Prevents wrong values where the density, the length or the widths are unusual.
void test_random() {
  std::mt19937_64 random(1);
  for (const std::size_t count : {1U, 2U, 63U, 64U, 65U, 255U, 256U, 257U, 513U, 5000U}) {
    for (const std::uint64_t universe :
         {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{100}, std::uint64_t{count},
          std::uint64_t{3} * count, std::uint64_t{1000003}, std::uint64_t{1} << 40,
          std::uint64_t{1} << 56}) {
      check_reads(random_values(random, count, universe, false), universe, false);
      const Values distinct = random_values(random, count, universe, true);
      check_reads(distinct, universe, true);
      check_finds(distinct, universe);
    }
  }
}

// Prevents hints that lead nowhere across long runs of one bit.
void test_long_runs() {
  Values clustered;
  for (std::uint64_t i = 0; i < 3000; ++i) clustered.push_back(i);
  for (std::uint64_t i = 0; i < 3000; ++i) clustered.push_back(1000000 + i);
  clustered.push_back(4000000);
  check_reads(clustered, 4000001, true);
  check_finds(clustered, 4000001);
  check_reads(Values(5000, 7), 8, false);
  check_reads(Values(5000, 0), 1, false);
  Values late(1000, 0);
  late.push_back(1000000);
  check_reads(late, 1000001, false);
}

// Prevents an empty sequence from taking room or being read.
void test_empty() {
  const EliasFanoLayout layout(0, 0, true);
  CHECK(layout.words == 0);
  const EliasFano sequence(nullptr, layout);
  CHECK(sequence.size() == 0 && sequence.is_consistent(true));
}

// Prevents more than 2 bits and the low ones per value, hints aside: that is the point of it.
void test_size() {
  const EliasFanoLayout layout(1000000, 100000000, true);
  CHECK(layout.low_width == 6);
  CHECK(64.0 * static_cast<double>(layout.words) / 1e6 < 2 + 6.6 + 0.5);
}

// Prevents out-of-bounds reads and endless loops on any damage (with sanitizers on), and damage
// to the bit vector that the check of a whole sequence overlooks.
void test_damage() {
  std::mt19937_64 random(2);
  const Values values = random_values(random, 600, 20000, true);
  const EliasFanoLayout layout(values.size(), 20000, true);
  const Values words = encode(layout, values);
  for (std::size_t bit = 0; bit < 64 * words.size(); ++bit) {
    Values damaged = words;
    damaged[bit / 64] ^= std::uint64_t{1} << (bit % 64);
    const EliasFano sequence(damaged.data(), layout);
    CHECK(bit >= layout.high_bits || !sequence.is_consistent(true));
    for (std::size_t i = 0; i < values.size(); i += 37) {
      (void)sequence[i];
      EliasFano::Finder finder = sequence.finder(sequence.cursor(i), values.size());
      for (const std::size_t j : {i, i + (values.size() - i) / 2, values.size() - 1, i}) {
        const std::uint64_t found = finder.find(values[j]);
        CHECK(found == EliasFano::kNotFound || (found >= i && found < values.size()));
      }
    }
  }
  const Values ones(words.size(), ~std::uint64_t{0});
  const Values zeros(words.size(), 0);
  for (const Values& bad : {ones, zeros}) {
    const EliasFano sequence(bad.data(), layout);
    CHECK(!sequence.is_consistent(false));
    for (std::size_t i = 0; i < values.size(); ++i) {
      EliasFano::Cursor cursor = sequence.cursor(i);
      for (std::size_t j = i; j + 1 < values.size(); ++j) cursor.next();
      (void)cursor.value();
      (void)sequence.finder(sequence.cursor(0), i).find(values[i]);
    }
  }
}

// Prevents a wrong bit from the portable selection.
void test_bits_of_words() {
  std::mt19937_64 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::uint64_t word = random();
    if (round % 3 == 1) word &= random() & random();
    if (round % 3 == 2) word |= random() | random();
    if (round == 0) word = ~std::uint64_t{0};
    CHECK(dart::count_ones(word) == std::popcount(word));
    int rank = 0;
    for (int place = 0; place < 64; ++place) {
      if (((word >> place) & 1U) != 0) CHECK(dart::select_one(word, rank++) == place);
    }
  }
}

}  // namespace

int main() {
  test_bits_of_words();
  test_random();
  test_long_runs();
  test_empty();
  test_size();
  test_damage();
}
