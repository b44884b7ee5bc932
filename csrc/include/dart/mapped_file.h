// A read-only memory mapping of one regular file.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace dart {

// Owns the mapping; movable, not copyable. The bytes stay valid while the object lives, even if the
// file is renamed or deleted. A file that another process truncates in place is not protected
// against (no mapping is): our writers replace files by rename and never change them in place.
class MappedFile {
 public:
  MappedFile() = default;
  // Throws FileError if `path` is missing, is not a regular file, or cannot be mapped.
  // `expected` completes the message: what the caller wanted to find there.
  MappedFile(const std::string& path, const std::string& expected, const std::string& remedy);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Takes the pages read so far out of the process's memory; they are mapped again when touched.
  void release() const;
  // Has the system read, from `offset` on, a multiple of the page size, single pages where they are
  // touched, and not what lies around them.
  void expect_scattered_reads(std::size_t offset) const;
  // The opposite, for all of the file.
  void expect_reads_in_order() const;
  // Has the system map the first `size` bytes as huge pages, where it can and they are yet to be
  // read: fewer page faults and misses of address translation, but whole 2 MiB at a time.
  void prefer_huge_pages(std::size_t size) const;
  // Reads a part from the disk and returns when it is there; the offset is a multiple of the page
  // size.
  void load(std::size_t offset, std::size_t size) const;
  // Keeps in memory what is read from now on. Throws FileError where the system forbids it.
  void lock(const std::string& path) const;

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace dart
