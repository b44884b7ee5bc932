#include "dart/quantiser.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace dart {
namespace {

constexpr int kDroppedBits = 15;  // of a float's 23 fraction bits; 8 remain
constexpr float kLargest = 1.0F;

// Points on a line, ascending, cut into runs with the least sum of weighted squared distances to
// the mean of each run.
class Partition {
 public:
  Partition(const std::vector<double>& positions, const std::vector<double>& weights) {
    sums_.push_back({});
    for (std::size_t i = 0; i < positions.size(); ++i) {
      const Sums& last = sums_.back();
      const double moment = weights[i] * positions[i];
      sums_.push_back(
          {last.weight + weights[i], last.first + moment, last.second + moment * positions[i]});
    }
  }

  // First point of each of `runs` runs; runs <= points.
  std::vector<std::size_t> best(std::size_t runs) {
    const std::size_t points = sums_.size() - 1;
    costs_.assign(points + 1, std::numeric_limits<double>::infinity());
    costs_[0] = 0;
    next_costs_.resize(points + 1);
    starts_.assign(runs, std::vector<std::uint16_t>(points + 1, 0));
    for (std::size_t run = 0; run < runs; ++run) {
      std::fill(next_costs_.begin(), next_costs_.end(), std::numeric_limits<double>::infinity());
      extend(starts_[run], run + 1, points, run, points - 1);
      costs_.swap(next_costs_);
    }
    std::vector<std::size_t> result(runs);
    std::size_t end = points;
    for (std::size_t run = runs; run-- > 0;) {
      end = starts_[run][end];
      result[run] = end;
    }
    return result;
  }

 private:
  struct Sums {
    double weight = 0;
    double first = 0;
    double second = 0;
  };

  double cost(std::size_t begin, std::size_t end) const {
    const double weight = sums_[end].weight - sums_[begin].weight;
    const double first = sums_[end].first - sums_[begin].first;
    const double second = sums_[end].second - sums_[begin].second;
    return std::max(second - first * first / weight, 0.0);
  }

  // Where the last run before each of the ends low .. high starts, knowing that it is in
  // first .. last: the later the end, the later the start, so halving the ends halves the starts.
  void extend(std::vector<std::uint16_t>& starts, std::size_t low, std::size_t high,
              std::size_t first, std::size_t last) {
    if (low > high) return;
    const std::size_t end = low + (high - low) / 2;
    double best = std::numeric_limits<double>::infinity();
    std::size_t start = first;
    for (std::size_t i = first; i <= std::min(last, end - 1); ++i) {
      const double value = costs_[i] + cost(i, end);
      if (value < best) {
        best = value;
        start = i;
      }
    }
    next_costs_[end] = best;
    starts[end] = static_cast<std::uint16_t>(start);
    if (end > low) extend(starts, low, end - 1, first, start);
    extend(starts, end + 1, high, start, last);
  }

  std::vector<Sums> sums_;
  std::vector<double> costs_;  // of the first points, up to each, in the runs so far
  std::vector<double> next_costs_;
  std::vector<std::vector<std::uint16_t>> starts_;
};

}  // namespace

Quantiser::Quantiser(int bits) : size_(std::size_t{1} << std::clamp(bits, 0, kMaxBits)) {
  if (bits < kMinBits || bits > kMaxBits) {
    throw std::invalid_argument("bits is " + std::to_string(bits) + ", expected " +
                                std::to_string(kMinBits) + ".." + std::to_string(kMaxBits));
  }
  steps_.resize(step_of(kLargest) + 1);
}

// Positive floats are ordered like their bits.
std::uint32_t Quantiser::step_of(float probability) {
  return std::bit_cast<std::uint32_t>(probability) >> kDroppedBits;
}

void Quantiser::add(float probability, std::uint64_t weight) {
  Step& step = steps_[step_of(probability)];
  // An n-gram that was never counted still needs a value near its own.
  const auto share = static_cast<double>(std::max<std::uint64_t>(weight, 1));
  const bool is_first = step.weight == 0;
  step.weight += share;
  if (probability > 0) step.weighted_log += share * std::log(static_cast<double>(probability));
  step.least = is_first ? probability : std::min(step.least, probability);
  step.most = is_first ? probability : std::max(step.most, probability);
}

std::vector<float> Quantiser::choose() {
  std::vector<float> codebook;
  codes_.assign(steps_.size(), 0);
  if (steps_[0].weight > 0) codebook.push_back(0.0F);
  std::vector<std::size_t> used;
  std::vector<double> positions;
  std::vector<double> weights;
  for (std::size_t i = 1; i < steps_.size(); ++i) {
    if (steps_[i].weight == 0) continue;
    used.push_back(i);
    positions.push_back(steps_[i].weighted_log / steps_[i].weight);
    weights.push_back(steps_[i].weight);
  }
  if (used.empty()) return codebook;
  const std::size_t runs = std::min(used.size(), size_ - codebook.size());
  std::vector<std::size_t> starts = Partition(positions, weights).best(runs);
  starts.push_back(used.size());
  for (std::size_t run = 0; run < runs; ++run) {
    Step whole = steps_[used[starts[run]]];
    whole.weight = whole.weighted_log = 0;
    for (std::size_t i = starts[run]; i < starts[run + 1]; ++i) {
      const Step& step = steps_[used[i]];
      whole.weight += step.weight;
      whole.weighted_log += step.weighted_log;
      whole.most = step.most;
      codes_[used[i]] = static_cast<std::uint16_t>(codebook.size());
    }
    const auto mean = static_cast<float>(std::exp(whole.weighted_log / whole.weight));
    codebook.push_back(std::clamp(mean, whole.least, whole.most));
  }
  return codebook;
}

}  // namespace dart
