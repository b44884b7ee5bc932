// A file in the making.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "dart/writable_bytes.h"

namespace dart {

// Owns the descriptor; movable, not copyable. Closing neither flushes nor removes the file. Every
// member throws FileError, with the system's reason and the name `shown`.
class WorkFile final : public WritableBytes {
 public:
  enum class Mode { kNew, kOpenOrNew };

  WorkFile() = default;
  WorkFile(const std::string& path, const std::string& shown, Mode mode);
  // With kNew and where the file is there already: an object that is not open.
  bool is_open() const { return descriptor_ >= 0; }
  WorkFile(WorkFile&& other) noexcept;
  WorkFile& operator=(WorkFile&& other) noexcept;
  WorkFile(const WorkFile&) = delete;
  WorkFile& operator=(const WorkFile&) = delete;
  ~WorkFile() override;

  std::uint64_t size() const;
  void resize(std::uint64_t bytes) override;
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) override;
  void read_at(std::uint64_t offset, std::span<std::byte> bytes) const override;
  // Waits until what was written is on the disk.
  void sync();
  // Closes the file and gives it another name, replacing what has it.
  void close_as(const std::string& destination);

 private:
  [[noreturn]] void fail(const std::string& what) const;

  std::string path_;
  std::string shown_;
  int descriptor_ = -1;
};

}  // namespace dart
