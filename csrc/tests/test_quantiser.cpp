#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "dart/quantiser.h"

using dart::Quantiser;

namespace {

struct Point {
  float probability;
  std::uint64_t weight;
};

double error_of(const std::vector<Point>& points, std::size_t begin, std::size_t end) {
  double weight = 0;
  double mean = 0;
  for (std::size_t i = begin; i < end; ++i) {
    weight += static_cast<double>(points[i].weight);
    mean += static_cast<double>(points[i].weight) * std::log(points[i].probability);
  }
  mean /= weight;
  double error = 0;
  for (std::size_t i = begin; i < end; ++i) {
    const double difference = std::log(points[i].probability) - mean;
    error += static_cast<double>(points[i].weight) * difference * difference;
  }
  return error;
}

// Least error with `runs` runs of the points from `begin` on, by trying everything.
double least_error(const std::vector<Point>& points, std::size_t begin, int runs) {
  if (runs == 1) return error_of(points, begin, points.size());
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t end = begin + 1; end < points.size(); ++end) {
    least = std::min(least, error_of(points, begin, end) + least_error(points, end, runs - 1));
  }
  return least;
}

// Prevents a codebook that is worse than it could be.
void test_is_optimal() {
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    std::vector<Point> points;
    Quantiser quantiser(2);
    for (int i = 0; i < 12; ++i) {
      // Steps apart, so that the first rounding changes nothing.
      const float probability = 1.0F / static_cast<float>(1 + (i * 3) + random() % 3);
      points.push_back({probability, 1 + random() % 20});
      quantiser.add(probability, points.back().weight);
    }
    std::sort(points.begin(), points.end(),
              [](const Point& a, const Point& b) { return a.probability < b.probability; });
    const std::vector<float> codebook = quantiser.choose();
    CHECK(codebook.size() == 4);
    double error = 0;
    for (const Point& point : points) {
      const double difference =
          std::log(codebook[quantiser.code(point.probability)]) - std::log(point.probability);
      error += static_cast<double>(point.weight) * difference * difference;
    }
    CHECK(error < least_error(points, 0, 4) * 1.001 + 1e-6);
  }
}

// Prevents rounding where there is a code for every probability, and a 0 that is not one.
void test_keeps_what_it_can() {
  const std::vector<float> probabilities{1.0F, 0.5F, 0.0F, 1.0F / 3, 1e-9F, 2.0F / 3};
  Quantiser quantiser(3);
  for (const float probability : probabilities) quantiser.add(probability, 3);
  const std::vector<float> codebook = quantiser.choose();
  CHECK(codebook.size() == probabilities.size());
  CHECK(std::is_sorted(codebook.begin(), codebook.end()));
  for (const float probability : probabilities) {
    CHECK(codebook[quantiser.code(probability)] == probability);
  }
}

// Prevents large errors on many values, and values that are no probabilities.
void test_error_is_bounded() {
  for (int bits = Quantiser::kMinBits; bits <= Quantiser::kMaxBits; ++bits) {
    std::mt19937 random(static_cast<unsigned>(bits));
    Quantiser quantiser(bits);
    std::vector<float> probabilities;
    quantiser.add(0.0F, 0);
    for (int i = 0; i < 3000; ++i) {
      const auto exponent = -10.0 * static_cast<double>(random()) / 4294967296.0;
      probabilities.push_back(static_cast<float>(std::exp(exponent)));
      quantiser.add(probabilities.back(), 1);
    }
    const std::vector<float> codebook = quantiser.choose();
    CHECK(codebook.size() == std::size_t{1} << bits);
    CHECK(codebook[0] == 0.0F && codebook[1] > 0.0F && codebook.back() <= 1.0F);
    CHECK(std::adjacent_find(codebook.begin(), codebook.end(), std::greater_equal<>()) ==
          codebook.end());
    double error = 0;
    for (const float probability : probabilities) {
      const double difference =
          std::log(codebook[quantiser.code(probability)]) - std::log(probability);
      error += difference * difference;
    }
    // Even steps would be off by 10 / codes / sqrt(12) on average.
    const double even = 10.0 / static_cast<double>(codebook.size() - 1) / std::sqrt(12.0);
    CHECK(std::sqrt(error / static_cast<double>(probabilities.size())) < 1.05 * even);
  }
}

void test_degenerate() {
  CHECK(Quantiser(8).choose().empty());
  Quantiser zeros(8);
  zeros.add(0.0F, 5);
  CHECK(zeros.choose() == std::vector<float>{0.0F});
  CHECK_THROWS(Quantiser(1), std::invalid_argument, "bits is 1");
  CHECK_THROWS(Quantiser(9), std::invalid_argument, "bits is 9");
}

}  // namespace

int main() {
  test_is_optimal();
  test_keeps_what_it_can();
  test_error_is_bounded();
  test_degenerate();
}
