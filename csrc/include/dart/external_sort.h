// Sorting more records than memory holds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "dart/record_file.h"

namespace dart {

// Takes records in any order and gives them back in ascending order (operator<). What does not fit
// the memory goes into sorted runs, files named `prefix` and a number, which are removed with the
// object. Throws FileError.
template <typename Record>
class ExternalSorter {
 public:
  ExternalSorter(std::string prefix, std::size_t memory_bytes)
      : prefix_(std::move(prefix)),
        memory_bytes_(memory_bytes),
        capacity_(std::max<std::size_t>(memory_bytes / sizeof(Record), 16)) {}
  ExternalSorter(const ExternalSorter&) = delete;
  ExternalSorter& operator=(const ExternalSorter&) = delete;
  ~ExternalSorter() {
    for (const auto& tier : tiers_) remove(tier);
  }

  void add(const Record& record) {
    if (records_.size() == capacity_) spill();
    if (records_.size() == records_.capacity()) {
      records_.reserve(std::min(capacity_, std::max<std::size_t>(2 * records_.size(), 1024)));
    }
    records_.push_back(record);
  }

  // Calls `visit` with every record, ascending; equal ones in any order. Only once.
  template <typename Visit>
  void finish(const Visit& visit) {
    if (tiers_.empty()) {
      std::sort(records_.begin(), records_.end());
      for (const Record& record : records_) visit(record);
      records_ = {};
      return;
    }
    spill();
    records_ = {};
    std::vector<std::string> runs;
    for (const auto& tier : tiers_) runs.insert(runs.end(), tier.begin(), tier.end());
    merge_files(runs, visit);
  }

 private:
  // Runs merged at a time: open files are limited, and each has a buffer.
  static constexpr std::size_t kFanIn = 128;

  void spill() {
    std::sort(records_.begin(), records_.end());
    RecordWriter<Record> writer(new_name());
    for (const Record& record : records_) writer.add(record);
    keep(writer, 0);
    records_.clear();
  }

  // Makes a run of the writer's records in this tier; a full tier becomes one run of the next.
  void keep(RecordWriter<Record>& writer, std::size_t tier) {
    writer.commit();
    if (tiers_.size() == tier) tiers_.emplace_back();
    tiers_[tier].push_back(name(named_ - 1));
    if (tiers_[tier].size() < kFanIn) return;
    const std::vector<std::string> runs = tiers_[tier];
    RecordWriter<Record> merged(new_name());
    merge_files(runs, [&merged](const Record& record) { merged.add(record); });
    remove(runs);
    tiers_[tier].clear();
    keep(merged, tier + 1);
  }

  template <typename Visit>
  void merge_files(const std::vector<std::string>& runs, const Visit& visit) const {
    const std::size_t buffer = std::clamp<std::size_t>(memory_bytes_ / runs.size(), 4096, 1 << 22);
    std::vector<RecordReader<Record>> readers;
    readers.reserve(runs.size());
    for (const std::string& run : runs) readers.emplace_back(run, buffer);
    merge(readers, visit);
  }

  static void remove(const std::vector<std::string>& runs) {
    std::error_code ignored;
    for (const std::string& run : runs) std::filesystem::remove(run, ignored);
  }

  std::string name(std::size_t number) const { return prefix_ + std::to_string(number); }
  std::string new_name() { return name(named_++); }

  std::string prefix_;
  std::size_t memory_bytes_;
  std::size_t capacity_;
  std::vector<Record> records_;
  std::vector<std::vector<std::string>> tiers_;  // runs, by how often their records were merged
  std::size_t named_ = 0;
};

}  // namespace dart
