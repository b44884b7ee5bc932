#include "dart/temporary_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "dart/errors.h"

namespace dart {

TemporaryFile::TemporaryFile(const std::string& destination) : destination_(destination) {
  const std::string stem = destination + ".tmp-" + std::to_string(::getpid()) + "-";
  // Another thread or a crashed run with this process id may own a name: take the next one.
  for (int attempt = 0; attempt < 100 && descriptor_ < 0; ++attempt) {
    path_ = stem + std::to_string(attempt);
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) break;
  }
  if (descriptor_ < 0) {
    path_.clear();
    fail("cannot be created");
  }
}

TemporaryFile::~TemporaryFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!path_.empty()) ::unlink(path_.c_str());
}

void TemporaryFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail("cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void TemporaryFile::overwrite_start(std::span<const std::byte> bytes) {
  const off_t end = ::lseek(descriptor_, 0, SEEK_CUR);
  if (end < 0 || ::lseek(descriptor_, 0, SEEK_SET) != 0) fail("cannot be written");
  append(bytes);
  if (::lseek(descriptor_, end, SEEK_SET) != end) fail("cannot be written");
}

void TemporaryFile::commit() {
  if (::fsync(descriptor_) != 0) fail("cannot be flushed to disk");
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("cannot be closed");
  if (::rename(path_.c_str(), destination_.c_str()) != 0) fail("cannot be put in place");
  path_.clear();
}

void TemporaryFile::fail(const std::string& what) const {
  throw FileError(destination_, what + " (" + std::strerror(errno) + ")",
                  "a path in an existing folder with write permission and free space",
                  "check the folder, its permissions and the disk, or give another destination");
}

}  // namespace dart
