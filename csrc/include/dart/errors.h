// The two ways a file can fail. Each message names the file, what was found, what was expected and
// what to do, so that the bindings can pass it on unchanged.
#pragma once

#include <stdexcept>
#include <string>

namespace dart {

// A file is corrupt, truncated, or of another format or version.
class FormatError : public std::runtime_error {
 public:
  FormatError(const std::string& file, const std::string& field, const std::string& found,
              const std::string& expected, const std::string& remedy)
      : std::runtime_error(file + ": " + field + " is " + found + ", expected " + expected + "; " +
                           remedy) {}
};

// A file cannot be opened, read or written at all.
class FileError : public std::runtime_error {
 public:
  FileError(const std::string& file, const std::string& found, const std::string& expected,
            const std::string& remedy)
      : std::runtime_error(file + ": " + found + ", expected " + expected + "; " + remedy) {}
};

}  // namespace dart
