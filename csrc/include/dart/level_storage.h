// Where levels and what lies between the steps of a job go while they are made: memory or disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dart/level_files.h"
#include "dart/record_file.h"
#include "dart/store_data.h"

namespace dart {

// Takes the values of a column (see column.h) in order.
template <typename Value>
class ColumnWriter {
 public:
  ColumnWriter() = default;  // keeps nothing
  explicit ColumnWriter(std::vector<Value>& memory) : memory_(&memory) {}
  explicit ColumnWriter(const std::string& path) { file_.emplace(path); }

  void add(Value value) {
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

// Where levels and what lies between two steps are kept: in memory, or in files named `prefix` ...
class LevelStorage {
 public:
  explicit LevelStorage(StoreData& memory) : memory_(&memory) {}
  explicit LevelStorage(std::string prefix) : prefix_(std::move(prefix)) {}

  bool is_on_disk() const { return memory_ == nullptr; }
  std::string path(const std::string& name) const { return prefix_ + name; }
  // Levels on disk are named so and by their depth; see LevelPaths.
  std::string level_prefix() const { return path("level-"); }

  ColumnWriter<Token> tokens(int depth, std::uint64_t nodes) {
    return column<Token>(depth, &LevelData::tokens, &LevelPaths::tokens, nodes);
  }
  ColumnWriter<Count> counts(int depth, std::uint64_t nodes) {
    return column<Count>(depth, &LevelData::counts, &LevelPaths::counts, nodes);
  }
  ColumnWriter<NodeId> children(int depth, std::uint64_t nodes) {
    return column<NodeId>(depth, &LevelData::children, &LevelPaths::children, nodes + 1);
  }

 private:
  template <typename Value>
  ColumnWriter<Value> column(int depth, std::vector<Value> LevelData::* memory,
                             std::string LevelPaths::* path, std::uint64_t size) {
    if (depth == 0) return ColumnWriter<Value>();  // the root has no level
    if (memory_ == nullptr) {
      return ColumnWriter<Value>(LevelPaths(level_prefix() + std::to_string(depth)).*path);
    }
    std::vector<Value>& values = memory_->levels[static_cast<std::size_t>(depth - 1)].*memory;
    values.reserve(size);
    return ColumnWriter<Value>(values);
  }

  StoreData* memory_ = nullptr;
  std::string prefix_;
};

}  // namespace dart
