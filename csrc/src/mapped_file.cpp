#include "dart/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "dart/errors.h"

namespace dart {

MappedFile::MappedFile(const std::string& path, const std::string& expected,
                       const std::string& remedy) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    throw FileError(path, std::string("cannot be opened (") + std::strerror(errno) + ")", expected,
                    remedy);
  }
  struct stat status{};
  std::string problem;
  if (::fstat(descriptor, &status) != 0) {
    problem = std::string("cannot be examined (") + std::strerror(errno) + ")";
  } else if (S_ISDIR(status.st_mode)) {
    problem = "is a directory";
  } else if (!S_ISREG(status.st_mode)) {
    problem = "is not a regular file";
  } else if (status.st_size > 0) {
    size_ = static_cast<std::size_t>(status.st_size);
    void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor, 0);
    if (address == MAP_FAILED) {
      problem = std::string("cannot be mapped (") + std::strerror(errno) + ")";
      size_ = 0;
    } else {
      data_ = static_cast<const std::byte*>(address);
    }
  }
  ::close(descriptor);
  if (!problem.empty()) throw FileError(path, problem, expected, remedy);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::release() const {
  if (data_ != nullptr) (void)::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

void MappedFile::expect_scattered_reads(std::size_t offset) const {
  if (offset >= size_) return;
  (void)::madvise(const_cast<std::byte*>(data_) + offset, size_ - offset, MADV_RANDOM);
}

void MappedFile::expect_reads_in_order() const {
  if (data_ != nullptr) (void)::madvise(const_cast<std::byte*>(data_), size_, MADV_SEQUENTIAL);
}

void MappedFile::prefer_huge_pages(std::size_t size) const {
#ifdef MADV_HUGEPAGE
  if (data_ != nullptr) (void)::madvise(const_cast<std::byte*>(data_), size, MADV_HUGEPAGE);
#else
  (void)size;
#endif
}

void MappedFile::load(std::size_t offset, std::size_t size) const {
  std::byte* const start = const_cast<std::byte*>(data_) + offset;
#ifdef MADV_POPULATE_READ
  if (::madvise(start, size, MADV_POPULATE_READ) == 0) return;  // else an older kernel
#endif
  (void)::madvise(start, size, MADV_WILLNEED);
}

void MappedFile::lock(const std::string& path) const {
  if (data_ == nullptr) return;
#ifdef MLOCK_ONFAULT
  const int failed = ::mlock2(data_, size_, MLOCK_ONFAULT);
#else
  const int failed = ::mlock(data_, size_);
#endif
  if (failed == 0) return;
  const std::string reason = std::strerror(errno);
  struct rlimit limit{};
  (void)::getrlimit(RLIMIT_MEMLOCK, &limit);
  throw FileError(path, "cannot be locked in memory (" + reason + ")",
                  "leave to lock " + std::to_string(size_) + " bytes, here it is for " +
                      std::to_string(limit.rlim_cur) + " (RLIMIT_MEMLOCK)",
                  "raise the limit (ulimit -l, in KiB) or do without locking");
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace dart
