#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "counts.h"
#include "dart/ngram_encoder.h"
#include "dart/ngram_store.h"

using dart::Count;
using dart::NgramStore;
using dart::Token;
using dart::ValueCoding;
using dart::test::count_all;
using dart::test::Counts;
using dart::test::Ngram;
using dart::test::prune;
using dart::test::random_text;
using dart::test::to_data;

namespace {

struct Answer {
  float probability = 0;
  std::int32_t length = 0;
};

Answer look_up(const Counts& counts, const Ngram& context, Token token, int order) {
  for (std::size_t length =
           std::min<std::size_t>(context.size(), static_cast<std::size_t>(order) - 1);
       length > 0; --length) {
    Ngram ngram(context.end() - static_cast<std::ptrdiff_t>(length), context.end());
    const auto whole = counts.find(ngram);
    ngram.push_back(token);
    const auto part = counts.find(ngram);
    if (whole == counts.end() || part == counts.end()) continue;
    if (whole->second == 0 || part->second == 0) continue;
    const float reciprocal = 1.0F / static_cast<float>(whole->second);
    return {std::min(static_cast<float>(part->second) * reciprocal, 1.0F),
            static_cast<std::int32_t>(length)};
  }
  return {};
}

// Every n-gram, its neighbours, and contexts that occur nowhere.
void check_against(const Counts& counts, int order, Token vocab) {
  const dart::StoreData data = to_data(counts, order);
  const auto exact_image = dart::serialize_store(data, ValueCoding::exact());
  const auto exact = NgramStore::view(exact_image, "exact");
  exact.verify();
  const auto rounded_image = dart::serialize_store(data, ValueCoding::quantised(6));
  const auto rounded = NgramStore::view(rounded_image, "rounded");
  rounded.verify();
  CHECK(exact.is_exact() && !rounded.is_exact());
  CHECK(exact.num_nodes() == counts.size() && rounded.num_nodes() == counts.size());
  CHECK(exact.root_count() == 17 && exact.vocab_size() == rounded.vocab_size());
  std::vector<Token> tokens;
  for (Token token = -1; token <= vocab + 1; ++token) tokens.push_back(token);
  std::vector<float> values(tokens.size());
  std::vector<std::int32_t> lengths(tokens.size());
  std::vector<float> rounded_values(tokens.size());
  std::vector<std::int32_t> rounded_lengths(tokens.size());
  for (const auto& [ngram, count] : counts) {
    CHECK(exact.count(ngram) == static_cast<std::int64_t>(count));
    Ngram longer = ngram;
    longer.push_back(vocab + 5);
    CHECK(exact.count(longer) == 0);
    exact.score(exact.state_after(ngram), tokens, values, lengths);
    rounded.score(rounded.state_after(ngram), tokens, rounded_values, rounded_lengths);
    CHECK(lengths == rounded_lengths);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const Answer expected = look_up(counts, ngram, tokens[i], order);
      CHECK(values[i] == expected.probability && lengths[i] == expected.length);
      CHECK((rounded_values[i] == 0) == (values[i] == 0));
      if (values[i] > 0) CHECK(std::abs(std::log(rounded_values[i] / values[i])) < 0.5F);
    }
  }
}

// Prevents wrong answers for what text gives, where levels are remapped.
void test_counted_text() {
  std::mt19937 random(1);
  for (int order = 1; order <= 5; ++order) {
    for (const std::uint32_t vocab : {2U, 9U, 60U}) {
      const Counts counts = count_all(random_text(random, 10 * vocab, vocab), order);
      check_against(counts, order, static_cast<Token>(vocab));
      const auto image = dart::serialize_store(to_data(counts, order), ValueCoding::exact());
      const auto sizes = NgramStore::view(image, "memory").level_sizes();
      CHECK(order < 4 || vocab < 60 || sizes[3].is_remapped);
    }
  }
}

// Prevents wrong answers where suffixes are missing, counts are 0, or both: pruned files.
void test_pruned() {
  std::mt19937 random(2);
  for (int round = 0; round < 30; ++round) {
    const int order = 2 + round % 4;
    const Counts kept =
        prune(random, count_all(random_text(random, 200, 7), order), round % 2 == 0);
    // Some levels stay closed under suffixes, some do not.
    check_against(kept, order, 7);
  }
}

// Prevents large numbers from being cut: counts, tokens, and their sums.
void test_large_numbers() {
  const Token huge = 0x7FFFFFFF;
  Counts counts;
  for (const Token token : {Token{0}, Token{5}, huge}) {
    counts[{token}] = (std::uint64_t{1} << 40) + static_cast<Count>(token);
    for (const Token next : {Token{5}, huge}) {
      counts[{token, next}] = std::uint64_t{1} << 34;
      counts[{token, next, huge}] = 3;
    }
  }
  check_against(counts, 3, 6);
  const auto image = dart::serialize_store(to_data(counts, 3), ValueCoding::exact());
  const auto store = NgramStore::view(image, "memory");
  CHECK(store.vocab_size() == std::uint64_t{1} << 31);
  CHECK(store.count(Ngram{huge}) == (std::int64_t{1} << 40) + huge);
  CHECK(store.count(Ngram{huge, huge, huge}) == 3);
}

// Prevents a quantised file from answering with numbers it does not have.
void test_quantised_has_no_counts() {
  const auto image = dart::serialize_store(to_data({{{1}, 2}}, 1), ValueCoding::quantised(8));
  const auto store = NgramStore::view(image, "x.ngram");
  CHECK(store.count(Ngram{}) == 17);
  CHECK_THROWS(store.count(Ngram{1}), std::invalid_argument, "x.ngram holds rounded");
}

// Prevents arrays that would make a file of nonsense.
void test_refusals() {
  const auto refuse = [](const char* part, const auto& change) {
    dart::StoreData data = to_data({{{1}, 4}, {{2}, 4}, {{1, 1}, 2}, {{1, 3}, 2}, {{2, 1}, 1}}, 2);
    change(data);
    CHECK_THROWS(dart::serialize_store(data, ValueCoding::exact()), std::invalid_argument, part);
  };
  refuse("1 to 8 levels", [](auto& d) { d.levels.clear(); });
  refuse("1 to 8 levels", [](auto& d) { d.levels.resize(9); });
  refuse("do not fit", [](auto& d) { d.levels[0].counts.pop_back(); });
  refuse("do not fit", [](auto& d) { d.levels[0].children.pop_back(); });
  refuse("do not fit", [](auto& d) { d.levels[0].children.back() = 4; });
  refuse("do not fit", [](auto& d) { d.levels[1].children = {0, 0, 0, 0}; });
  refuse("order of their parents", [](auto& d) { d.levels[0].children[1] = 5; });
  refuse("order of their parents", [](auto& d) { d.levels[0].children[0] = 1; });
  refuse("sorted by token", [](auto& d) { d.levels[0].tokens = {2, 1}; });
  refuse("sorted by token", [](auto& d) { d.levels[1].tokens[1] = 1; });
  refuse("sorted by token", [](auto& d) { d.levels[0].tokens[0] = -1; });
  CHECK_THROWS(dart::serialize_store({0, {{}}}, ValueCoding::quantised(1)), std::invalid_argument,
               "bits is 1");
  dart::MemoryBytes bytes;
  dart::StoreEncoder encoder(2, 0, ValueCoding::exact(), bytes, "", {});
  CHECK_THROWS(encoder.finish(), std::logic_error, "levels are missing");
}

}  // namespace

int main() {
  test_counted_text();
  test_pruned();
  test_large_numbers();
  test_quantised_has_no_counts();
  test_refusals();
}
