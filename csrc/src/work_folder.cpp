#include "dart/work_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "dart/errors.h"

namespace dart {
namespace {

namespace fs = std::filesystem;

constexpr const char* kExpected = "a path in an existing folder with write permission";
constexpr const char* kRemedy = "check the folder and its permissions, or give another destination";

}  // namespace

WorkFolder::WorkFolder(std::string path) : path_(std::move(path)) {
  // Whoever was at work may remove the folder between two of our steps: then again.
  while (!lock()) {
  }
}

// False where the folder went away meanwhile.
bool WorkFolder::lock() {
  if (::mkdir(path_.c_str(), 0777) != 0) {
    if (errno != EEXIST) {
      throw FileError(path_, std::string("cannot be made (") + std::strerror(errno) + ")",
                      kExpected, kRemedy);
    }
    std::error_code ignored;
    if (!fs::exists(lock_path(), ignored) && !fs::is_empty(path_, ignored)) {
      throw FileError(path_, "holds files of somebody else", "a folder of unfinished work, or none",
                      "remove it, or give another destination");
    }
  }
  descriptor_ = ::open(lock_path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0 && errno == ENOENT) return false;
  if (descriptor_ < 0) {
    throw FileError(lock_path(), std::string("cannot be opened (") + std::strerror(errno) + ")",
                    kExpected, kRemedy);
  }
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    ::close(std::exchange(descriptor_, -1));
    if (error == EWOULDBLOCK) {
      throw FileError(path_, "another process works there", "to be the only one",
                      "wait until it has finished, or give another destination");
    }
    throw FileError(lock_path(), std::string("cannot be locked (") + std::strerror(error) + ")",
                    kExpected, kRemedy);
  }
  struct stat ours{};
  struct stat there{};
  if (::fstat(descriptor_, &ours) == 0 && ::stat(lock_path().c_str(), &there) == 0 &&
      ours.st_ino == there.st_ino && ours.st_dev == there.st_dev) {
    return true;
  }
  ::close(std::exchange(descriptor_, -1));
  return false;
}

WorkFolder::~WorkFolder() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void WorkFolder::keep_only(const std::vector<std::string>& files) const {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, ignored)) {
    const std::string path = entry.path().string();
    if (path == lock_path() || std::find(files.begin(), files.end(), path) != files.end()) continue;
    fs::remove_all(path, ignored);
  }
}

std::uint64_t WorkFolder::bytes() const {
  std::error_code ignored;
  std::uint64_t sum = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, ignored)) {
    const std::uintmax_t size = entry.file_size(ignored);
    if (size != static_cast<std::uintmax_t>(-1)) sum += size;
  }
  return sum;
}

std::uint64_t WorkFolder::free_bytes() const {
  std::error_code error;
  const fs::space_info space = fs::space(path_, error);
  return error ? ~std::uint64_t{0} : space.available;
}

void WorkFolder::remove() {
  keep_only({});
  std::error_code ignored;
  fs::remove(lock_path(), ignored);
  fs::remove(path_, ignored);
  ::close(std::exchange(descriptor_, -1));
}

}  // namespace dart
