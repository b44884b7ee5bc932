// How a long job tells how far it is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace dart {

// Called several times a second with the stage, what is done and what there is to do (in the same
// unit, whichever). May throw to stop the job.
using Progress = std::function<void(const std::string& stage, double done, double total)>;

// Tells it of steps that are all alike, one in many thousand.
class Steps {
 public:
  // `progress` may be empty and must outlive the object.
  Steps(const Progress& progress, std::string stage, std::uint64_t total)
      : progress_(progress), stage_(std::move(stage)), total_(total) {}

  void add_one() {
    if (++done_ % kTold == 0 && progress_) {
      progress_(stage_, static_cast<double>(done_), static_cast<double>(total_));
    }
  }

 private:
  static constexpr std::uint64_t kTold = 1 << 16;

  const Progress& progress_;
  std::string stage_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
};

}  // namespace dart
