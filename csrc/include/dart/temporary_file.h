// A file that appears whole under its name, or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "dart/work_file.h"

namespace dart {

// Written beside its destination and renamed by commit(); removed if that is never called.
// Every member throws FileError.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& destination);
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();

  // To write at any place; append() does not know of it.
  WorkFile& file() { return file_; }
  void append(std::span<const std::byte> bytes);
  // Flushes the bytes to the disk, then puts the file in its place.
  void commit();

 private:
  std::string destination_;
  std::string path_;
  WorkFile file_;
  std::uint64_t appended_ = 0;
};

}  // namespace dart
