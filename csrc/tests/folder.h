// A folder for the files of a test.
#pragma once

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <random>
#include <string>

// Removed with the object. In memory where that is possible: the code under test waits for the disk
// whenever it finishes a file.
class Folder {
 public:
  Folder() : path_(base() / ("dart-test-" + std::to_string(std::random_device{}()))) {
    std::filesystem::create_directories(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  static std::filesystem::path base() {
    const std::filesystem::path memory = "/dev/shm";
    return std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
  }

  std::filesystem::path path_;
};
