#include "dart/elias_fano.h"

#include <algorithm>
#include <bit>
#include <span>
#include <utility>

#include "dart/bit_select.h"

namespace dart {
namespace {

constexpr std::uint64_t kHintSpacing = 128;

constexpr std::uint64_t hint_count(std::uint64_t bits) {
  return (bits + kHintSpacing - 1) / kHintSpacing;
}

}  // namespace

EliasFanoLayout::EliasFanoLayout(std::uint64_t n, std::uint64_t u, bool is_searched)
    : count(n), universe(u) {
  if (count == 0) return;
  low_width = static_cast<int>(std::bit_width(std::max<std::uint64_t>(universe / count, 1))) - 1;
  buckets = ((universe - 1) >> low_width) + 1;
  high_bits = count + buckets;
  hint_width = bits_for(high_bits);
  one_hints = (high_bits + 63) / 64;
  zero_hints = one_hints + packed_words(hint_count(count), hint_width);
  low = zero_hints + (is_searched ? packed_words(hint_count(buckets), hint_width) : 0);
  words = low + packed_words(count, low_width);
}

EliasFano::EliasFano(const std::uint64_t* words, const EliasFanoLayout& layout)
    : layout_(layout),
      words_(words),
      last_word_(layout.count == 0 ? 0 : layout.one_hints - 1),
      one_hints_(words + layout.one_hints, layout.hint_width),
      zero_hints_(words + layout.zero_hints, layout.hint_width),
      low_(words + layout.low, layout.low_width) {}

template <bool kOnes>
std::uint64_t EliasFano::select(std::uint64_t rank) const {
  const std::uint64_t hint = (kOnes ? one_hints_ : zero_hints_)[rank / kHintSpacing];
  const std::uint64_t end = 64 * (last_word_ + 1);
  if (hint >= layout_.high_bits) return end;
  auto missing = static_cast<int>(rank % kHintSpacing);
  std::uint64_t at = hint / 64;
  std::uint64_t word = (kOnes ? words_[at] : ~words_[at]) & (~std::uint64_t{0} << (hint % 64));
  while (true) {
    const int found = count_ones(word);
    if (missing < found) return 64 * at + static_cast<std::uint64_t>(select_one(word, missing));
    if (at == last_word_) return end;
    missing -= found;
    ++at;
    word = kOnes ? words_[at] : ~words_[at];
  }
}

EliasFano::Cursor::Cursor(const EliasFano& sequence, std::uint64_t index)
    : sequence_(&sequence), index_(index) {
  const std::uint64_t place = sequence.select<true>(index);
  word_ = std::min(place / 64, sequence.last_word_);
  bits_ = place / 64 == word_ ? sequence.words_[word_] & (~std::uint64_t{0} << (place % 64)) : 0;
}

std::uint64_t EliasFano::find(std::uint64_t begin, std::uint64_t end, std::uint64_t value) const {
  const std::uint64_t bucket = value >> layout_.low_width;
  if (begin >= end || bucket >= layout_.buckets) return kNotFound;
  // The bucket's ones follow the zero that ends the bucket before; that one's place less its number
  // is how many values there are before.
  const std::uint64_t place = bucket == 0 ? 0 : select<false>(bucket - 1) + 1;
  if (place < bucket || place >= layout_.high_bits) return kNotFound;
  std::uint64_t first = std::max(place - bucket, begin);
  std::uint64_t at = place / 64;
  const std::uint64_t open = ~words_[at] & (~std::uint64_t{0} << (place % 64));
  std::uint64_t stop = 64 * at + static_cast<std::uint64_t>(std::countr_zero(open));
  if (open == 0) {
    std::uint64_t zeros = 0;
    while (zeros == 0 && at < last_word_) zeros = ~words_[++at];
    stop = 64 * at + static_cast<std::uint64_t>(std::countr_zero(zeros));
  }
  const std::uint64_t last = std::min(stop - bucket, end);
  if (first >= last) return kNotFound;
  const std::uint64_t wanted = value & ((std::uint64_t{1} << layout_.low_width) - 1);
  for (std::uint64_t length = last - first; length > 1;) {
    const std::uint64_t half = length / 2;
    if (low_[first + half - 1] < wanted) first += half;
    length -= half;
  }
  return low_[first] == wanted ? first : kNotFound;
}

bool EliasFano::is_consistent(bool is_strict) const {
  std::uint64_t ones = 0;
  std::uint64_t zeros = 0;
  std::uint64_t least = 0;
  for (std::uint64_t place = 0; place < layout_.high_bits; ++place) {
    const bool is_one = ((words_[place / 64] >> (place % 64)) & 1U) != 0;
    std::uint64_t& seen = is_one ? ones : zeros;
    if (seen == (is_one ? layout_.count : layout_.buckets)) return false;
    const bool has_hints = is_one || layout_.zero_hints != layout_.low;
    if (has_hints && seen % kHintSpacing == 0 &&
        (is_one ? one_hints_ : zero_hints_)[seen / kHintSpacing] != place) {
      return false;
    }
    if (is_one) {
      const std::uint64_t value = zeros << layout_.low_width | low_[ones];
      if (value < least || value >= layout_.universe) return false;
      least = is_strict ? value + 1 : value;
    }
    ++seen;
  }
  return true;
}

EliasFanoEncoder::EliasFanoEncoder(const EliasFanoLayout& layout)
    : layout_(layout), words_(layout.words, 0) {}

void EliasFanoEncoder::add(std::uint64_t value) {
  const std::uint64_t place = (value >> layout_.low_width) + added_;
  words_[place / 64] |= std::uint64_t{1} << (place % 64);
  const std::uint64_t mask = (std::uint64_t{1} << layout_.low_width) - 1;
  pack(std::span(words_).subspan(layout_.low), layout_.low_width, added_, value & mask);
  ++added_;
}

std::vector<std::uint64_t> EliasFanoEncoder::finish() {
  const bool has_zero_hints = layout_.zero_hints != layout_.low;
  const auto one_hints = std::span(words_).subspan(layout_.one_hints);
  const auto zero_hints = std::span(words_).subspan(layout_.zero_hints);
  std::uint64_t ones = 0;
  for (std::uint64_t place = 0; place < layout_.high_bits; ++place) {
    const bool is_one = ((words_[place / 64] >> (place % 64)) & 1U) != 0;
    const std::uint64_t number = is_one ? ones : place - ones;
    if (number % kHintSpacing == 0 && (is_one || has_zero_hints)) {
      pack(is_one ? one_hints : zero_hints, layout_.hint_width, number / kHintSpacing, place);
    }
    ones += is_one ? 1 : 0;
  }
  return std::move(words_);
}

}  // namespace dart
