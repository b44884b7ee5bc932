// Bytes that are written and read at any place: a file or memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace dart {

// Several threads may read and write places that do not overlap, while none resizes.
class WritableBytes {
 public:
  virtual ~WritableBytes() = default;
  // Bytes gained are zeros.
  virtual void resize(std::uint64_t bytes) = 0;
  // Both stay within the size.
  virtual void write_at(std::uint64_t offset, std::span<const std::byte> bytes) = 0;
  virtual void read_at(std::uint64_t offset, std::span<std::byte> bytes) const = 0;

 protected:
  WritableBytes() = default;
  WritableBytes(const WritableBytes&) = default;
  WritableBytes& operator=(const WritableBytes&) = default;
};

class MemoryBytes final : public WritableBytes {
 public:
  void resize(std::uint64_t bytes) override { bytes_.resize(bytes); }
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
    std::copy(bytes.begin(), bytes.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), bytes.size(), bytes.begin());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace dart
