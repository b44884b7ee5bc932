#include "dart/elias_fano.h"

#include <algorithm>
#include <bit>

#include "dart/bit_select.h"

namespace dart {
namespace {

constexpr std::uint64_t kHintSpacing = EliasFano::kHintSpacing;

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
