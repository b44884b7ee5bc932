// Bits and packed integers, written front to back to a place among the bytes of a store.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

#include "dart/bit_packed.h"
#include "dart/writable_bytes.h"

namespace dart {

// A run of 64-bit words, zeros where nothing is set. Keeps a few of them; finish() writes the rest.
class WordWriter {
 public:
  WordWriter(WritableBytes& bytes, std::uint64_t offset, std::uint64_t words)
      : bytes_(&bytes),
        offset_(offset),
        left_(words),
        buffer_(static_cast<std::size_t>(std::min(words, kBufferWords)), 0) {}

  // Sets bits of word `index`, which is below `words` and at least that of the call before.
  void set(std::uint64_t index, std::uint64_t bits) {
    while (index - first_ >= buffer_.size()) flush();
    buffer_[index - first_] |= bits;
  }
  void finish() {
    while (left_ > 0) flush();
  }

 private:
  static constexpr std::uint64_t kBufferWords = 8192;

  void flush() {
    if (left_ == 0) throw std::logic_error("more words are written than there is room for");
    const std::span<std::uint64_t> words = std::span(buffer_).first(
        static_cast<std::size_t>(std::min<std::uint64_t>(left_, buffer_.size())));
    bytes_->write_at(offset_, std::as_bytes(words));
    std::fill(words.begin(), words.end(), 0);
    offset_ += words.size_bytes();
    left_ -= words.size();
    first_ += words.size();
  }

  WritableBytes* bytes_;
  std::uint64_t offset_;  // of the buffer's first word, in bytes
  std::uint64_t left_;    // words from that one on
  std::uint64_t first_ = 0;
  std::vector<std::uint64_t> buffer_;
};

// `count` integers of `width` bits each, as BitPacked reads them.
class PackedWriter {
 public:
  PackedWriter(WritableBytes& bytes, std::uint64_t offset, std::uint64_t count, int width)
      : words_(bytes, offset, packed_words(count, width)), width_(width) {}

  // Below 2^width.
  void add(std::uint64_t value) {
    if (width_ == 0) return;
    const auto shift = static_cast<int>(bit_ % 64);
    words_.set(bit_ / 64, value << shift);
    if (shift + width_ > 64) words_.set(bit_ / 64 + 1, value >> (64 - shift));
    bit_ += static_cast<std::uint64_t>(width_);
  }
  void finish() { words_.finish(); }

 private:
  WordWriter words_;
  int width_;
  std::uint64_t bit_ = 0;
};

}  // namespace dart
