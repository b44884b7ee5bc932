// Long arrays, in memory or in files of records, read from the front on through a window.
//
// What the encoder takes and what it sets aside: it must not matter to it where they lie.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dart/errors.h"
#include "dart/level_files.h"
#include "dart/record_file.h"
#include "dart/store_data.h"
#include "dart/work_file.h"

namespace dart {

// Where an array lies. In memory, the values are the caller's.
template <typename Value>
class Column {
 public:
  Column() = default;
  explicit Column(std::span<const Value> values) : values_(values), size_(values.size()) {}
  // Throws FileError.
  explicit Column(const std::string& path)
      : path_(path), size_(SequentialFile(path).size() / sizeof(Value)) {}

  std::uint64_t size() const { return size_; }
  bool is_in_memory() const { return path_.empty(); }
  std::span<const Value> values() const { return values_; }  // empty of one in a file
  const std::string& path() const { return path_; }          // empty of one in memory

 private:
  std::span<const Value> values_;
  std::string path_;
  std::uint64_t size_ = 0;
};

// Reads a column. Cheap where the places asked for move forward; those in memory are not copied.
template <typename Value>
class ColumnReader {
 public:
  // Throws FileError, like all that reads.
  explicit ColumnReader(const Column<Value>& column) : column_(column), window_(column.values()) {
    if (!column.is_in_memory()) file_.emplace(column.path());
  }

  std::uint64_t size() const { return column_.size(); }
  // `index` must be below size().
  Value operator[](std::uint64_t index) {
    if (index - first_ >= window_.size()) load(index, index + 1);
    return window_[index - first_];
  }
  // The values first .. last - 1, all at once and until the next call; last <= size().
  std::span<const Value> range(std::uint64_t first, std::uint64_t last) {
    if (first < first_ || last > first_ + window_.size()) load(first, last);
    return window_.subspan(first - first_, last - first);
  }

 private:
  static constexpr std::size_t kFar = 4096 / sizeof(Value);
  static constexpr std::size_t kNear = kRecordBufferBytes / sizeof(Value);

  // After a jump only a little is read: the next one may be as far.
  void load(std::uint64_t first, std::uint64_t last) {
    const std::uint64_t end = first_ + window_.size();
    const bool is_near = first >= first_ && first < end + kNear;
    const std::uint64_t wanted = std::max<std::uint64_t>(last - first, is_near ? kNear : kFar);
    buffer_.resize(static_cast<std::size_t>(std::min(wanted, column_.size() - first)));
    if (first != end) file_->skip_to(first * sizeof(Value));
    const auto bytes = std::as_writable_bytes(std::span<Value>(buffer_));
    window_ = {};
    if (file_->read(bytes) != bytes.size()) {
      throw FileError(column_.path(), "is shorter than it was", "a file that nobody else changes",
                      "begin again");
    }
    window_ = buffer_;
    first_ = first;
  }

  Column<Value> column_;
  std::uint64_t first_ = 0;  // place of the window
  std::span<const Value> window_;
  std::vector<Value> buffer_;
  std::optional<SequentialFile> file_;
};

// A column in the making. The file, if it is one, is left there.
template <typename Value>
class ScratchColumn {
 public:
  ScratchColumn() = default;  // an empty one, in memory
  // For `size` values. Without a path they are kept in memory. A file's earlier contents are
  // dropped.
  ScratchColumn(const std::string& path, std::uint64_t size) : path_(path) {
    if (path.empty()) {
      values_.reserve(static_cast<std::size_t>(size));
      return;
    }
    file_ = WorkFile(path, path, WorkFile::Mode::kOpenOrNew);
    file_.resize(0);
  }

  void append(std::span<const Value> values) {
    if (path_.empty()) {
      values_.insert(values_.end(), values.begin(), values.end());
      return;
    }
    file_.write_at(bytes_, std::as_bytes(values));
    bytes_ += values.size_bytes();
  }
  void sync() {
    if (!path_.empty()) file_.sync();
  }
  // What has been appended; of one in memory, until it is appended to or goes.
  Column<Value> column() const {
    return path_.empty() ? Column<Value>(std::span<const Value>(values_)) : Column<Value>(path_);
  }

 private:
  std::string path_;
  std::vector<Value> values_;
  WorkFile file_;
  std::uint64_t bytes_ = 0;
};

// The columns of a level.
struct LevelColumns {
  LevelColumns() = default;
  LevelColumns(const LevelView& level)  // NOLINT: meant to convert
      : tokens(level.tokens), counts(level.counts), children(level.children) {}
  // Throws FileError.
  explicit LevelColumns(const LevelPaths& paths)
      : tokens(paths.tokens), counts(paths.counts), children(paths.children) {}

  Column<Token> tokens;
  Column<Count> counts;
  Column<NodeId> children;
};

// Calls `visit` with a parent and its children begin .. end - 1, for all that have children.
template <typename Visit>
void for_each_run(const Column<NodeId>& children, const Visit& visit) {
  ColumnReader<NodeId> ends(children);
  NodeId begin = 0;
  for (std::uint64_t parent = 0; parent + 1 < ends.size(); ++parent) {
    const NodeId end = ends[parent + 1];
    if (begin < end) visit(parent, begin, end);
    begin = end;
  }
}

}  // namespace dart
