// A sequence of values that is written once and read back in order: in memory or on disk.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dart/record_file.h"

namespace dart {

template <typename Value>
class ColumnWriter {
 public:
  ColumnWriter() = default;  // keeps nothing
  explicit ColumnWriter(std::vector<Value>& memory) : memory_(&memory) {}
  explicit ColumnWriter(const std::string& path) { file_.emplace(path); }

  void add(const Value& value) {
    if (memory_ != nullptr) {
      memory_->push_back(value);
    } else if (file_) {
      file_->add(value);
    }
  }
  // A file appears under its name.
  void commit() {
    if (file_) file_->commit();
  }

 private:
  std::vector<Value>* memory_ = nullptr;
  std::optional<RecordWriter<Value>> file_;
};

template <typename Value>
class ColumnReader {
 public:
  explicit ColumnReader(const std::vector<Value>& memory) : memory_(&memory) {}
  explicit ColumnReader(const std::string& path) { file_.emplace(path); }

  // The next value; there must be one.
  Value next() {
    if (memory_ != nullptr) return (*memory_)[at_++];
    const Value value = file_->front();
    file_->pop();
    return value;
  }
  bool is_at_end() const {
    return memory_ != nullptr ? at_ == memory_->size() : file_->is_at_end();
  }

 private:
  const std::vector<Value>* memory_ = nullptr;
  std::size_t at_ = 0;
  std::optional<RecordReader<Value>> file_;
};

}  // namespace dart
