#include "dart/work_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "dart/errors.h"

namespace dart {

WorkFile::WorkFile(const std::string& path, const std::string& shown, Mode mode)
    : path_(path), shown_(shown) {
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | (mode == Mode::kNew ? O_EXCL : 0);
  descriptor_ = ::open(path.c_str(), flags, 0666);
  if (descriptor_ < 0 && !(mode == Mode::kNew && errno == EEXIST)) fail("cannot be created");
}

WorkFile::WorkFile(WorkFile&& other) noexcept
    : path_(std::move(other.path_)),
      shown_(std::move(other.shown_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

WorkFile& WorkFile::operator=(WorkFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(shown_, other.shown_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

WorkFile::~WorkFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::uint64_t WorkFile::size() const {
  struct stat status{};
  if (::fstat(descriptor_, &status) != 0) fail("cannot be examined");
  return static_cast<std::uint64_t>(status.st_size);
}

void WorkFile::resize(std::uint64_t bytes) {
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) fail("cannot be resized");
}

void WorkFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

void WorkFile::read_at(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) errno = ENODATA;
    if (count <= 0) fail("cannot be read");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
}

void WorkFile::sync() {
  if (::fsync(descriptor_) != 0) fail("cannot be flushed to disk");
}

void WorkFile::close_as(const std::string& destination) {
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("cannot be closed");
  if (::rename(path_.c_str(), destination.c_str()) != 0) fail("cannot be put in place");
}

void WorkFile::fail(const std::string& what) const {
  throw FileError(shown_, what + " (" + std::strerror(errno) + ")",
                  "a path in an existing folder with write permission and free space",
                  "check the folder, its permissions and the disk, or give another destination");
}

}  // namespace dart
