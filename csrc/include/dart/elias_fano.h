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

#include <algorithm>
#include <bit>
#include <cstdint>

#include "dart/bit_packed.h"
#include "dart/bit_select.h"
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
  static constexpr std::uint64_t kHintSpacing = 128;  // a hint for so many ones, or zeros

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
    // Values of the sequence that may be the one looked for: begin .. end - 1.
    struct Bucket {
      std::uint64_t begin;
      std::uint64_t end;
    };

    // The bucket of `value`, empty if there is none. Values must ascend from call to call, those of
    // the sequence be distinct. Asks for what find() will read.
    Bucket seek(std::uint64_t value);
    // Index of `value` in its bucket, else kNotFound.
    std::uint64_t find(Bucket bucket, std::uint64_t value) const;

    // Ask for the memory that seek() will read: as EliasFano's, one after the other.
    void prefetch_hint(std::uint64_t value) const {
      const std::uint64_t bucket = value >> sequence_->layout_.low_width;
      if (is_far(bucket)) sequence_->zero_hints_.prefetch((bucket - 1) / kHintSpacing);
    }
    void prefetch_bits(std::uint64_t value) const;

   private:
    friend class EliasFano;
    Finder(const EliasFano& sequence, const Cursor& begin, std::uint64_t end);
    // Whether a hint leads closer to the bucket than the last one found.
    bool is_far(std::uint64_t bucket) const {
      return bucket > zeros_ + kHintSpacing && bucket < sequence_->layout_.buckets;
    }

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

  // Ask for the memory that a cursor at `index` will read, without waiting for it: first for where
  // the hints are, and when these may have come, for where they lead. For many places at once; one
  // alone is read as fast without.
  void prefetch_hint(std::uint64_t index) const {
    one_hints_.prefetch(index / kHintSpacing);
    low_.prefetch(index);
  }
  void prefetch_bits(std::uint64_t index) const;

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

inline std::uint64_t EliasFano::select(std::uint64_t rank) const {
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

inline void EliasFano::prefetch_bits(std::uint64_t index) const {
  const std::uint64_t hint = one_hints_[index / kHintSpacing];
  if (hint < layout_.high_bits) prefetch(words_ + hint / 64);
}

inline EliasFano::Cursor::Cursor(const EliasFano& sequence, std::uint64_t index)
    : sequence_(&sequence), index_(index) {
  const std::uint64_t place = sequence.select(index);
  word_ = std::min(place / 64, sequence.last_word_);
  bits_ = place / 64 == word_ ? sequence.words_[word_] & (~std::uint64_t{0} << (place % 64)) : 0;
}

inline EliasFano::Finder::Finder(const EliasFano& sequence, const Cursor& begin, std::uint64_t end)
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

inline EliasFano::Finder::Bucket EliasFano::Finder::seek(std::uint64_t value) {
  const EliasFanoLayout& layout = sequence_->layout_;
  const std::uint64_t* const words = sequence_->words_;
  const std::uint64_t last_word = sequence_->last_word_;
  // A bucket's ones follow the zero that ends the bucket before, and so many zeros.
  const std::uint64_t bucket = value >> layout.low_width;
  if (bucket >= layout.buckets || place_ >= layout.high_bits) return {};
  std::uint64_t place = place_;
  if (bucket != place_ - begin_) {
    if (is_far(bucket)) {
      const std::uint64_t rank = (bucket - 1) / kHintSpacing * kHintSpacing;
      const std::uint64_t hint = sequence_->zero_hints_[rank / kHintSpacing];
      if (hint >= layout.high_bits) return {};
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
    if (bucket <= zeros_ || bucket > zeros_ + found) return {};
    const auto rank = static_cast<int>(bucket - zeros_) - 1;
    place = 64 * word_ + static_cast<std::uint64_t>(select_one(~words[word_], rank)) + 1;
    if (place >= layout.high_bits) return {};
  }
  // Its ones end with the next zero.
  std::uint64_t at = place / 64;
  std::uint64_t open = ~words[at] & (~std::uint64_t{0} << (place % 64));
  while (open == 0 && at < last_word) open = ~words[++at];
  const std::uint64_t stop = 64 * at + static_cast<std::uint64_t>(std::countr_zero(open));
  const Bucket found{std::max(place - bucket, begin_), std::min(stop - bucket, end_)};
  if (found.begin >= found.end) return {};
  // Where the search for the value begins.
  sequence_->low_.prefetch(found.begin + (found.end - found.begin) / 2);
  return found;
}

inline std::uint64_t EliasFano::Finder::find(Bucket bucket, std::uint64_t value) const {
  if (bucket.begin >= bucket.end) return kNotFound;
  const BitPacked& low = sequence_->low_;
  const std::uint64_t wanted = value & ((std::uint64_t{1} << sequence_->layout_.low_width) - 1);
  std::uint64_t first = bucket.begin;
  for (std::uint64_t length = bucket.end - bucket.begin; length > 1;) {
    const std::uint64_t half = length / 2;
    if (low[first + half - 1] < wanted) first += half;
    length -= half;
  }
  return low[first] == wanted ? first : kNotFound;
}

inline void EliasFano::Finder::prefetch_bits(std::uint64_t value) const {
  const std::uint64_t bucket = value >> sequence_->layout_.low_width;
  if (!is_far(bucket)) return;
  const std::uint64_t hint = sequence_->zero_hints_[(bucket - 1) / kHintSpacing];
  if (hint < sequence_->layout_.high_bits) prefetch(sequence_->words_ + hint / 64);
}

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
