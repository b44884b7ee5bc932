#include "dart/temporary_file.h"

#include <unistd.h>

#include "dart/errors.h"

namespace dart {

TemporaryFile::TemporaryFile(const std::string& destination) : destination_(destination) {
  const std::string stem = destination + ".tmp-" + std::to_string(::getpid()) + "-";
  // Another thread or a crashed run with this process id may own a name: take the next one.
  for (int attempt = 0; attempt < 100 && !file_.is_open(); ++attempt) {
    path_ = stem + std::to_string(attempt);
    file_ = WorkFile(path_, destination, WorkFile::Mode::kNew);
  }
  if (!file_.is_open()) {
    throw FileError(destination, "is crowded by files named " + stem + "0, 1, ...",
                    "a free name for a temporary file", "remove them");
  }
}

TemporaryFile::~TemporaryFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

void TemporaryFile::append(std::span<const std::byte> bytes) {
  file_.write_at(appended_, bytes);
  appended_ += bytes.size();
}

void TemporaryFile::commit() {
  file_.sync();
  file_.close_as(destination_);
  path_.clear();
}

}  // namespace dart
