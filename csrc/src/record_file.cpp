#include "dart/record_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "dart/errors.h"

namespace dart {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw FileError(path, what + " (" + std::strerror(errno) + ")", "a file that can be read",
                  "check the disk and the permissions");
}

}  // namespace

SequentialFile::SequentialFile(const std::string& path, const std::string& expected,
                               const std::string& remedy)
    : path_(path) {
  // O_NONBLOCK: opening a pipe would wait for its writer.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status{};
  std::string problem;
  if (descriptor_ < 0) {
    problem = std::string("cannot be opened (") + std::strerror(errno) + ")";
  } else if (::fstat(descriptor_, &status) != 0) {
    problem = std::string("cannot be examined (") + std::strerror(errno) + ")";
  } else if (S_ISDIR(status.st_mode)) {
    problem = "is a directory";
  } else if (!S_ISREG(status.st_mode)) {
    problem = "is not a regular file";
  }
  if (!problem.empty()) {
    if (descriptor_ >= 0) ::close(descriptor_);
    throw FileError(path, problem, expected, remedy);
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
  (void)::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_SEQUENTIAL);
}

SequentialFile::SequentialFile(SequentialFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

SequentialFile& SequentialFile::operator=(SequentialFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  return *this;
}

SequentialFile::~SequentialFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void SequentialFile::skip_to(std::uint64_t offset) {
  if (::lseek(descriptor_, static_cast<off_t>(offset), SEEK_SET) < 0) fail(path_, "cannot be read");
}

std::size_t SequentialFile::read(std::span<std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::read(descriptor_, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path_, "cannot be read");
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

}  // namespace dart
