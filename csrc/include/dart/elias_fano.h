// Elias-Fano: a sequence of ascending integers in little more than the bits it must take, readable
// at any place.
//
// Of n values below u each has its lowest floor(log2(u / n)) bits in a packed array. The rest, the
// bucket, is written in unary: value i sets bit (bucket + i) of a bit vector, so that the ones
// number the values and the zeros end the buckets. The place of every 128th one, and where the
// sequence is to be searched also of every 128th zero, is kept as a hint.
//
// Words of a sequence, in this order: bit vector, hints of ones, hints of zeros, low bits.
// source: Elias 1974, Fano 1971; sampled selection as in Okanohara and Sadakane 2007.
#pragma once

#include <cstdint>

#include "dart/bit_packed.h"
#include "dart/word_writer.h"

namespace dart {

// Where the parts of a sequence lie; follows from three numbers.
struct EliasFanoLayout {
  EliasFanoLayout() = default;
  // `count` values below `universe`; a universe of 0 goes with a count of 0. The count must be
  // below 2^41 and the universe at most 2^56. With `is_searched`, there is a finder().
  EliasFanoLayout(std::uint64_t count, std::uint64_t universe, bool is_searched);

  std::uint64_t count = 0;
  std::uint64_t universe = 0;
  int low_width = 0;
  std::uint64_t buckets = 0;
  std::uint64_t high_bits = 0;  // length of the bit vector: count + buckets
  int hint_width = 0;
  std::uint64_t one_hints = 0;   // in words from the start, like the next three
  std::uint64_t zero_hints = 0;  // equal to `low` where there are none
  std::uint64_t low = 0;
  std::uint64_t words = 0;  // of the whole
};

// A view of a sequence; the words are the caller's and may be damaged: every answer is then wrong
// but within its bounds.
class EliasFano {
 public:
  static constexpr std::uint64_t kNotFound = ~std::uint64_t{0};

  // Reads value after value.
  class Cursor {
   public:
    std::uint64_t value() const {
      const std::uint64_t place = 64 * word_ + static_cast<std::uint64_t>(std::countr_zero(bits_));
      return (place - index_) << sequence_->layout_.low_width | sequence_->low_[index_];
    }
    // Call only where another value follows.
    void next() {
      ++index_;
      bits_ &= bits_ - 1;
      skip_zeros();
    }

   private:
    friend class EliasFano;
    Cursor(const EliasFano& sequence, std::uint64_t index);
    void skip_zeros() {
      while (bits_ == 0 && word_ < sequence_->last_word_) bits_ = sequence_->words_[++word_];
    }

    const EliasFano* sequence_;
    std::uint64_t index_;
    std::uint64_t word_;
    std::uint64_t bits_;  // of the word, from the value's one on
  };

  // Looks for ascending values among those of a range, each from where the last one was found.
  class Finder {
   public:
    // Index of `value`, else kNotFound. Values must ascend from call to call, those of the sequence
    // be distinct.
    std::uint64_t find(std::uint64_t value);

   private:
    friend class EliasFano;
    Finder(const EliasFano& sequence, const Cursor& begin, std::uint64_t end);

    const EliasFano* sequence_;
    std::uint64_t begin_;
    std::uint64_t end_;
    std::uint64_t place_;  // of the range's first one
    std::uint64_t word_;
    std::uint64_t zeros_;  // in the words before that
  };

  EliasFano() = default;
  EliasFano(const std::uint64_t* words, const EliasFanoLayout& layout);

  std::uint64_t size() const { return layout_.count; }

  // These take an index below size().
  std::uint64_t operator[](std::uint64_t index) const { return cursor(index).value(); }
  Cursor cursor(std::uint64_t index) const { return {*this, index}; }

  // Looks among the values from the cursor's on to end - 1; end <= size(). Needs a layout with
  // is_searched.
  Finder finder(const Cursor& begin, std::uint64_t end) const { return {*this, begin, end}; }

  // Whether bits, hints and values agree with each other and with the layout; with `is_strict`,
  // whether the values are distinct.
  bool is_consistent(bool is_strict) const;

 private:
  // Place of the one number `rank`; the end of the last word if there are not so many.
  std::uint64_t select(std::uint64_t rank) const;

  EliasFanoLayout layout_;
  const std::uint64_t* words_ = nullptr;
  std::uint64_t last_word_ = 0;  // of the bit vector
  BitPacked one_hints_;
  BitPacked zero_hints_;
  BitPacked low_;
};

// Makes the words of a sequence.
class EliasFanoEncoder {
 public:
  // They go to `offset` of `bytes`, which is large enough.
  EliasFanoEncoder(const EliasFanoLayout& layout, WritableBytes& bytes, std::uint64_t offset);

  // Values in ascending order, each below the universe, `count` in all.
  void add(std::uint64_t value);
  void finish();

 private:
  void end_buckets(std::uint64_t bucket);

  EliasFanoLayout layout_;
  WordWriter high_;
  PackedWriter one_hints_;
  PackedWriter zero_hints_;
  PackedWriter low_;
  std::uint64_t added_ = 0;
  std::uint64_t next_hint_ = 0;  // number of the next zero whose place is kept
};

}  // namespace dart
