// Unsigned integers of a fixed number of bits, one after the other.
//
// Little-endian: value i begins at bit i * width of the words read as one long integer. A word of
// zeros follows, so that eight bytes can be read from wherever a value begins. word_writer.h makes
// them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dart {

static_assert(std::endian::native == std::endian::little,
              "packed integers are little-endian and are used in place");

// Up to 7 bits before the value and the value itself must fit into the eight bytes that are read.
inline constexpr int kMaxPackedWidth = 56;

// Bits that the values 0 .. count - 1 need.
constexpr int bits_for(std::uint64_t count) {
  return count == 0 ? 0 : static_cast<int>(std::bit_width(count - 1));
}

// 64-bit words that `count` values take.
constexpr std::uint64_t packed_words(std::uint64_t count, int width) {
  const std::uint64_t bits = count * static_cast<std::uint64_t>(width);
  return bits == 0 ? 0 : (bits + 63) / 64 + 1;
}

// A view of packed integers; the words are the caller's.
class BitPacked {
 public:
  BitPacked() = default;
  BitPacked(const std::uint64_t* words, int width)
      : bytes_(reinterpret_cast<const std::byte*>(words)),
        width_(static_cast<std::uint64_t>(width)),
        mask_((std::uint64_t{1} << width) - 1) {}

  // `index` must be below the count that packed_words was asked for.
  std::uint64_t operator[](std::uint64_t index) const {
    if (width_ == 0) return 0;
    const std::uint64_t bit = index * width_;
    std::uint64_t word = 0;
    std::memcpy(&word, bytes_ + bit / 8, sizeof(word));
    return (word >> (bit % 8)) & mask_;
  }

 private:
  const std::byte* bytes_ = nullptr;
  std::uint64_t width_ = 0;
  std::uint64_t mask_ = 0;
};

}  // namespace dart
