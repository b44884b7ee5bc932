// A folder for the unfinished work of one process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dart {

class WorkFolder {
 public:
  // Makes the folder if it is not there, and keeps other processes out until the object is gone or
  // its process dead. Throws FileError, also where another process is at work.
  explicit WorkFolder(std::string path);
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  ~WorkFolder();

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  // Removes every file but these, given with their paths.
  void keep_only(const std::vector<std::string>& files) const;
  std::uint64_t bytes() const;       // of its files
  std::uint64_t free_bytes() const;  // on its disk
  // Removes the folder; nothing may be done with it afterwards.
  void remove();

 private:
  std::string lock_path() const { return path_ + "/lock"; }
  bool lock();

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace dart
