// Few representatives for many probabilities.
#pragma once

#include <cstdint>
#include <vector>

namespace dart {

// Takes probabilities with weights, chooses a codebook and tells the code of each probability.
//
// Minimises the weighted squared error of ln(probability). The optimum is exact but for a first
// rounding to steps of a 256th of an octave; where there are no more distinct steps than codes,
// each probability that is alone in its step keeps its exact value.
// source: optimal one-dimensional k-means by dynamic programming; Wu 1991, Gronlund et al. 2017.
class Quantiser {
 public:
  static constexpr int kMinBits = 2;
  static constexpr int kMaxBits = 8;

  // Throws std::invalid_argument unless kMinBits <= bits <= kMaxBits.
  explicit Quantiser(int bits);

  // 0 <= probability <= 1. What has probability 0 gets a code of its own, with the value 0.
  void add(float probability, std::uint64_t weight);
  // Chooses at most 2^bits values, ascending. Call once, after all probabilities.
  std::vector<float> choose();
  // Of a probability that was added.
  std::uint32_t code(float probability) const { return codes_[step_of(probability)]; }

 private:
  struct Step {
    double weight = 0;
    double weighted_log = 0;
    float least = 0;
    float most = 0;
  };
  static std::uint32_t step_of(float probability);

  std::size_t size_;
  std::vector<Step> steps_;
  std::vector<std::uint16_t> codes_;
};

}  // namespace dart
