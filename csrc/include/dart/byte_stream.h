// Bytes read front to back, out of memory or a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dart/record_file.h"

namespace dart {

class ByteStream {
 public:
  // `bytes` stay the caller's, and must stay.
  explicit ByteStream(std::span<const std::byte> bytes)
      : size_(bytes.size()), window_(bytes), memory_(bytes) {}
  // Reads through a buffer of its own.
  explicit ByteStream(SequentialFile& file);

  std::uint64_t size() const { return size_; }
  std::uint64_t left() const { return left_behind_ + window_.size(); }

  // The next `count` bytes, valid until the next call; at most kMaxTake, and no more than left().
  const std::byte* take(std::size_t count) {
    if (window_.size() < count) refill(count);
    const std::byte* const bytes = window_.data();
    window_ = window_.subspan(count);
    return bytes;
  }
  // No more than left().
  void skip(std::uint64_t count);
  // Back to the first byte.
  void rewind();

  static constexpr std::size_t kMaxTake = 64;

 private:
  void refill(std::size_t count);

  std::uint64_t size_;
  std::uint64_t left_behind_ = 0;  // bytes of the file behind the window
  std::span<const std::byte> window_;
  std::span<const std::byte> memory_;
  SequentialFile* file_ = nullptr;
  std::vector<std::byte> buffer_;
};

}  // namespace dart
