// Sorting more records than memory holds.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dart/record_file.h"

namespace dart {

// Takes records in any order and gives them back in ascending order (operator<). What does not fit
// the memory goes into sorted runs, files named `prefix` and a number, which are removed with the
// object unless persist() gave them away. While a run is sorted and written by a thread of its own,
// the next one fills. Throws FileError.
template <typename Record>
class ExternalSorter {
 public:
  // `most` records or fewer will be added: no more memory is taken than these need. `wait` is
  // called now and then while the sorter waits for its thread, and may throw.
  explicit ExternalSorter(std::string prefix, std::size_t memory_bytes,
                          std::uint64_t most = ~std::uint64_t{0}, std::function<void()> wait = {})
      : prefix_(std::move(prefix)),
        memory_bytes_(memory_bytes),
        capacity_(static_cast<std::size_t>(
            std::min(std::max<std::uint64_t>(memory_bytes / 2 / sizeof(Record), 16),
                     std::max<std::uint64_t>(most, 1)))),
        wait_(std::move(wait)) {}
  ExternalSorter(const ExternalSorter&) = delete;
  ExternalSorter& operator=(const ExternalSorter&) = delete;
  ~ExternalSorter() {
    if (thread_.valid()) thread_.wait();
    if (owns_runs_) {
      for (const auto& tier : tiers_) remove(tier);
    }
  }

  void add(const Record& record) {
    if (filling_.size == capacity_) spill();
    if (!filling_.records) filling_.records = std::make_unique_for_overwrite<Record[]>(capacity_);
    filling_.records[filling_.size++] = record;
    ++count_;
  }
  std::uint64_t count() const { return count_; }  // records added

  // Calls `visit` with every record, ascending; equal ones in any order. Only once.
  // `memory_bytes`: for the merge; by default that of the sorter.
  template <typename Visit>
  void finish(const Visit& visit, std::size_t memory_bytes = 0) {
    if (!thread_.valid() && tiers_.empty()) {  // in this order: the tiers are the thread's
      if (filling_.size > kSmall) {
        in_thread([this] { sort(filling_); });
        join();
      } else {
        sort(filling_);
      }
      for (const Record& record : filling_.span()) visit(record);
      filling_ = {};
      return;
    }
    settle();
    merge_files(runs(), memory_bytes == 0 ? memory_bytes_ : memory_bytes, visit);
  }

  // Puts everything into runs, which are the caller's from now on: their files.
  std::vector<std::string> persist() {
    settle();
    owns_runs_ = false;
    return runs();
  }
  // Takes what persist() returned, instead of records, and leaves the files to the caller.
  void adopt(const std::vector<std::string>& runs, std::uint64_t count) {
    if (!runs.empty()) tiers_.push_back(runs);
    owns_runs_ = false;
    count_ = count;
  }

 private:
  // Runs merged at a time: open files are limited, and each has a buffer.
  static constexpr std::size_t kFanIn = 128;
  static constexpr std::size_t kSmall = std::size_t{1} << 16;  // records not worth a thread

  struct Buffer {
    std::unique_ptr<Record[]> records;
    std::size_t size = 0;
    std::span<Record> span() const { return {records.get(), size}; }
  };

  static void sort(const Buffer& buffer) { std::sort(buffer.span().begin(), buffer.span().end()); }

  void spill() {
    join();
    std::swap(filling_, spilling_);
    in_thread([this] {
      sort(spilling_);
      RecordWriter<Record> writer(new_name());
      for (const Record& record : spilling_.span()) writer.add(record);
      keep(writer, 0);
      spilling_.size = 0;
    });
  }
  // Everything is in runs, and the memory is given back.
  void settle() {
    if (filling_.size > 0) spill();
    join();
    filling_ = {};
    spilling_ = {};
  }

  template <typename Task>
  void in_thread(Task task) {
    thread_ = std::async(std::launch::async, std::move(task));
  }
  void join() {
    if (!thread_.valid()) return;
    while (wait_ && thread_.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
      wait_();
    }
    thread_.get();
  }

  // Makes a run of the writer's records in this tier; a full tier becomes one run of the next.
  void keep(RecordWriter<Record>& writer, std::size_t tier) {
    writer.commit();
    if (tiers_.size() == tier) tiers_.emplace_back();
    tiers_[tier].push_back(name(named_ - 1));
    if (tiers_[tier].size() < kFanIn) return;
    const std::vector<std::string> full = tiers_[tier];
    spilling_ = {};  // written; its memory is the merge's
    RecordWriter<Record> merged(new_name());
    merge_files(full, memory_bytes_ / 2, [&merged](const Record& record) { merged.add(record); });
    tiers_[tier].clear();
    remove(full);
    keep(merged, tier + 1);
  }

  template <typename Visit>
  static void merge_files(const std::vector<std::string>& runs, std::size_t memory_bytes,
                          const Visit& visit) {
    if (runs.empty()) return;
    const std::size_t buffer = std::clamp<std::size_t>(memory_bytes / runs.size(), 4096, 1 << 21);
    std::vector<RecordReader<Record>> readers;
    readers.reserve(runs.size());
    for (const std::string& run : runs) readers.emplace_back(run, buffer);
    merge(readers, visit);
  }

  std::vector<std::string> runs() const {
    std::vector<std::string> all;
    for (const auto& tier : tiers_) all.insert(all.end(), tier.begin(), tier.end());
    return all;
  }
  static void remove(const std::vector<std::string>& runs) {
    std::error_code ignored;
    for (const std::string& run : runs) std::filesystem::remove(run, ignored);
  }
  std::string name(std::size_t number) const { return prefix_ + std::to_string(number); }
  std::string new_name() { return name(named_++); }

  std::string prefix_;
  std::size_t memory_bytes_;
  std::size_t capacity_;  // of each of the two buffers
  std::function<void()> wait_;
  Buffer filling_;
  std::uint64_t count_ = 0;
  bool owns_runs_ = true;
  // The thread's while it runs, then ours:
  Buffer spilling_;
  std::vector<std::vector<std::string>> tiers_;  // runs, by how often their records were merged
  std::size_t named_ = 0;
  std::future<void> thread_;  // the last member: its end is awaited before anything else goes
};

}  // namespace dart
