#include "dart/elias_fano.h"

#include <algorithm>
#include <bit>

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

std::uint64_t EliasFano::select(std::uint64_t rank) const {
  const std::uint64_t hint = one_hints_[rank / kHintSpacing];
  const std::uint64_t end = 64 * (last_word_ + 1);
  if (hint >= layout_.high_bits) return end;
  auto missing = static_cast<int>(rank % kHintSpacing);
  std::uint64_t at = hint / 64;
  std::uint64_t word = words_[at] & (~std::uint64_t{0} << (hint % 64));
  while (true) {
    const int found = count_ones(word);
    if (missing < found) return 64 * at + static_cast<std::uint64_t>(select_one(word, missing));
    if (at == last_word_) return end;
    missing -= found;
    word = words_[++at];
  }
}

EliasFano::Cursor::Cursor(const EliasFano& sequence, std::uint64_t index)
    : sequence_(&sequence), index_(index) {
  const std::uint64_t place = sequence.select(index);
  word_ = std::min(place / 64, sequence.last_word_);
  bits_ = place / 64 == word_ ? sequence.words_[word_] & (~std::uint64_t{0} << (place % 64)) : 0;
}

EliasFano::Finder::Finder(const EliasFano& sequence, const Cursor& begin, std::uint64_t end)
    : sequence_(&sequence),
      begin_(begin.index_),
      end_(end),
      place_(64 * begin.word_ + static_cast<std::uint64_t>(std::countr_zero(begin.bits_))),
      word_(begin.word_),
      zeros_(0) {
  const std::uint64_t before = (std::uint64_t{1} << (place_ % 64)) - 1;
  const auto zeros = static_cast<std::uint64_t>(count_ones(~sequence.words_[word_] & before));
  zeros_ = place_ - begin_ - zeros;
}

std::uint64_t EliasFano::Finder::find(std::uint64_t value) {
  const EliasFanoLayout& layout = sequence_->layout_;
  const std::uint64_t* const words = sequence_->words_;
  const std::uint64_t last_word = sequence_->last_word_;
  // A bucket's ones follow the zero that ends the bucket before, and so many zeros.
  const std::uint64_t bucket = value >> layout.low_width;
  if (bucket >= layout.buckets || place_ >= layout.high_bits) return kNotFound;
  std::uint64_t place = place_;
  if (bucket != place_ - begin_) {
    if (bucket > zeros_ + kHintSpacing) {
      const std::uint64_t rank = (bucket - 1) / kHintSpacing * kHintSpacing;
      const std::uint64_t hint = sequence_->zero_hints_[rank / kHintSpacing];
      if (hint >= layout.high_bits) return kNotFound;
      const std::uint64_t before = (std::uint64_t{1} << (hint % 64)) - 1;
      word_ = hint / 64;
      zeros_ = rank - static_cast<std::uint64_t>(count_ones(~words[word_] & before));
    }
    std::uint64_t found = static_cast<std::uint64_t>(count_ones(~words[word_]));
    while (zeros_ + found < bucket && word_ < last_word) {
      zeros_ += found;
      found = static_cast<std::uint64_t>(count_ones(~words[++word_]));
    }
    // The first holds for values below those of the range, all are for damaged files.
    if (bucket <= zeros_ || bucket > zeros_ + found) return kNotFound;
    const auto rank = static_cast<int>(bucket - zeros_) - 1;
    place = 64 * word_ + static_cast<std::uint64_t>(select_one(~words[word_], rank)) + 1;
    if (place >= layout.high_bits) return kNotFound;
  }
  // Its ones end with the next zero.
  std::uint64_t at = place / 64;
  std::uint64_t open = ~words[at] & (~std::uint64_t{0} << (place % 64));
  while (open == 0 && at < last_word) open = ~words[++at];
  const std::uint64_t stop = 64 * at + static_cast<std::uint64_t>(std::countr_zero(open));
  std::uint64_t first = std::max(place - bucket, begin_);
  const std::uint64_t last = std::min(stop - bucket, end_);
  if (first >= last) return kNotFound;
  const BitPacked& low = sequence_->low_;
  const std::uint64_t wanted = value & ((std::uint64_t{1} << layout.low_width) - 1);
  for (std::uint64_t length = last - first; length > 1;) {
    const std::uint64_t half = length / 2;
    if (low[first + half - 1] < wanted) first += half;
    length -= half;
  }
  return low[first] == wanted ? first : kNotFound;
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

EliasFanoEncoder::EliasFanoEncoder(const EliasFanoLayout& layout, WritableBytes& bytes,
                                   std::uint64_t offset)
    : layout_(layout),
      high_(bytes, offset, layout.one_hints),
      one_hints_(bytes, offset + 8 * layout.one_hints, hint_count(layout.count), layout.hint_width),
      zero_hints_(bytes, offset + 8 * layout.zero_hints,
                  layout.zero_hints == layout.low ? 0 : hint_count(layout.buckets),
                  layout.hint_width),
      low_(bytes, offset + 8 * layout.low, layout.count, layout.low_width) {
  if (layout.zero_hints == layout.low) next_hint_ = layout.buckets;
}

void EliasFanoEncoder::add(std::uint64_t value) {
  const std::uint64_t bucket = value >> layout_.low_width;
  const std::uint64_t place = bucket + added_;
  end_buckets(bucket);
  if (added_ % kHintSpacing == 0) one_hints_.add(place);
  high_.set(place / 64, std::uint64_t{1} << (place % 64));
  low_.add(value & ((std::uint64_t{1} << layout_.low_width) - 1));
  ++added_;
}

// The zeros before that of `bucket`: zero z comes after z others and the ones added so far.
void EliasFanoEncoder::end_buckets(std::uint64_t bucket) {
  for (; next_hint_ < bucket; next_hint_ += kHintSpacing) zero_hints_.add(next_hint_ + added_);
}

void EliasFanoEncoder::finish() {
  end_buckets(layout_.buckets);
  high_.finish();
  one_hints_.finish();
  zero_hints_.finish();
  low_.finish();
}

}  // namespace dart
