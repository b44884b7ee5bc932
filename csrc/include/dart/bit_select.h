// Counting and selecting bits of a word.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace dart {
namespace bits {

inline constexpr std::uint64_t kOneInEachByte = 0x0101010101010101ULL;

// Byte i of the result: how many ones the bytes 0 .. i of the word hold.
constexpr std::uint64_t prefix_counts(std::uint64_t word) {
  word -= (word >> 1) & 0x5555555555555555ULL;
  word = (word & 0x3333333333333333ULL) + ((word >> 2) & 0x3333333333333333ULL);
  return ((word + (word >> 4)) & 0x0F0F0F0F0F0F0F0FULL) * kOneInEachByte;
}

// Place of the one number `rank` in a byte, for every byte and rank.
inline constexpr auto kSelectInByte = [] {
  std::array<std::array<std::uint8_t, 8>, 256> table{};
  for (std::size_t byte = 0; byte < table.size(); ++byte) {
    std::size_t rank = 0;
    for (std::uint8_t place = 0; place < 8; ++place) {
      if (((byte >> place) & 1U) != 0) table[byte][rank++] = place;
    }
  }
  return table;
}();

}  // namespace bits

// std::popcount is a call into a library where the compiler may not use the instruction.
constexpr int count_ones(std::uint64_t word) {
#if defined(__x86_64__) && !defined(__POPCNT__)
  return static_cast<int>(bits::prefix_counts(word) >> 56);
#else
  return std::popcount(word);
#endif
}

// Place of the one number `rank` (from 0) of a word that has more than `rank` ones.
// source: broadword selection, Vigna, "Broadword implementation of rank/select queries", 2008.
constexpr int select_one(std::uint64_t word, int rank) {
  constexpr std::uint64_t kHighBits = bits::kOneInEachByte << 7;
  const std::uint64_t counts = bits::prefix_counts(word);
  const auto wanted = static_cast<std::uint64_t>(rank);
  // The high bit of each byte: whether the one lies behind that byte.
  const std::uint64_t behind = ((wanted * bits::kOneInEachByte | kHighBits) - counts) & kHighBits;
  const std::uint64_t shift = ((behind >> 7) * bits::kOneInEachByte >> 56) * 8;
  const std::uint64_t before = ((counts << 8) >> shift) & 0xFFU;
  return static_cast<int>(shift + bits::kSelectInByte[(word >> shift) & 0xFFU][wanted - before]);
}

}  // namespace dart
