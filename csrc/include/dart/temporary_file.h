// A file that appears whole under its name, or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace dart {

// Written beside its destination and renamed by commit(); removed if that is never called.
// Every member throws FileError.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& destination);
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();

  void append(std::span<const std::byte> bytes);
  // Replaces the first bytes, which have been appended before.
  void overwrite_start(std::span<const std::byte> bytes);
  // Flushes the bytes to the disk, then puts the file in its place.
  void commit();

 private:
  [[noreturn]] void fail(const std::string& what) const;

  std::string destination_;
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace dart
