// Files of records of one size, written and read front to back through a buffer.
//
// What the builder and the importer keep on disk between two steps. A record is its bytes in memory
// (nothing but integers, little-endian), so such a file is no format for keeping.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "dart/temporary_file.h"

namespace dart {

inline constexpr std::size_t kRecordBufferBytes = std::size_t{1} << 18;

// Reads the bytes of a file one after the other. Every member throws FileError.
class SequentialFile {
 public:
  // `expected` and `remedy` complete the message where there is no such file.
  explicit SequentialFile(const std::string& path,
                          const std::string& expected = "a file that can be read",
                          const std::string& remedy = "check the disk and the permissions");
  SequentialFile(SequentialFile&& other) noexcept;
  SequentialFile& operator=(SequentialFile&& other) noexcept;
  ~SequentialFile();

  const std::string& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  void skip_to(std::uint64_t offset);
  // As many bytes as there are, up to those of `bytes`.
  std::size_t read(std::span<std::byte> bytes);

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

// Writes records; the file appears under its name with commit().
template <typename Record>
class RecordWriter {
  static_assert(std::is_trivially_copyable_v<Record>);

 public:
  explicit RecordWriter(const std::string& path, std::size_t buffer_bytes = kRecordBufferBytes)
      : file_(path), capacity_(std::max<std::size_t>(buffer_bytes / sizeof(Record), 1)) {
    buffer_.reserve(capacity_);
  }

  void add(const Record& record) {
    if (buffer_.size() == capacity_) flush();
    buffer_.push_back(record);
    ++count_;
  }
  std::uint64_t count() const { return count_; }
  void commit() {
    flush();
    file_.commit();
  }

 private:
  void flush() {
    file_.append(std::as_bytes(std::span<const Record>(buffer_)));
    buffer_.clear();
  }

  TemporaryFile file_;
  std::size_t capacity_;
  std::vector<Record> buffer_;
  std::uint64_t count_ = 0;
};

// Reads the records first .. last - 1, by default all. Throws FileError.
template <typename Record>
class RecordReader {
  static_assert(std::is_trivially_copyable_v<Record>);

 public:
  explicit RecordReader(const std::string& path, std::size_t buffer_bytes = kRecordBufferBytes,
                        std::uint64_t first = 0, std::uint64_t last = ~std::uint64_t{0})
      : file_(path),
        capacity_(std::max<std::size_t>(buffer_bytes / sizeof(Record), 1)),
        left_(std::min(file_.size() / sizeof(Record), last)) {
    left_ -= std::min(first, left_);
    file_.skip_to(first * sizeof(Record));
    fill();
  }

  std::uint64_t left() const { return left_ + (buffer_.size() - at_); }
  bool is_at_end() const { return at_ == buffer_.size(); }
  const Record& front() const { return buffer_[at_]; }  // unless at the end
  void pop() {
    if (++at_ == buffer_.size()) fill();
  }

 private:
  void fill() {
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(capacity_, left_));
    buffer_.resize(wanted);
    at_ = 0;
    const std::size_t bytes = file_.read(std::as_writable_bytes(std::span<Record>(buffer_)));
    buffer_.resize(bytes / sizeof(Record));
    left_ = buffer_.empty() ? 0 : left_ - buffer_.size();
  }

  SequentialFile file_;
  std::size_t capacity_;
  std::uint64_t left_;  // records not in the buffer yet
  std::vector<Record> buffer_;
  std::size_t at_ = 0;
};

// Calls `visit` with the records of sorted readers in ascending order; equal ones come in the order
// of their readers. Records are compared by operator<.
template <typename Record, typename Visit>
void merge(std::vector<RecordReader<Record>>& readers, const Visit& visit) {
  // A heap of the readers that have something left, the one with the least record first.
  std::vector<std::size_t> heap;
  for (std::size_t i = 0; i < readers.size(); ++i) {
    if (!readers[i].is_at_end()) heap.push_back(i);
  }
  const auto is_before = [&readers](std::size_t left, std::size_t right) {
    const Record& here = readers[left].front();
    const Record& there = readers[right].front();
    return here < there || (!(there < here) && left < right);
  };
  const auto sink = [&](std::size_t place) {
    const std::size_t reader = heap[place];
    for (std::size_t child = 2 * place + 1; child < heap.size(); child = 2 * place + 1) {
      if (child + 1 < heap.size() && is_before(heap[child + 1], heap[child])) ++child;
      if (!is_before(heap[child], reader)) break;
      heap[place] = heap[child];
      place = child;
    }
    heap[place] = reader;
  };
  for (std::size_t place = heap.size() / 2; place-- > 0;) sink(place);
  while (!heap.empty()) {
    RecordReader<Record>& first = readers[heap.front()];
    visit(first.front());
    first.pop();
    if (first.is_at_end()) {
      heap.front() = heap.back();
      heap.pop_back();
    }
    if (!heap.empty()) sink(0);
  }
}

}  // namespace dart
