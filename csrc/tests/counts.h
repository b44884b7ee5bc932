// Small counts of n-grams, the slow and obvious way.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "dart/store_data.h"

namespace dart::test {

using Ngram = std::vector<Token>;
using Counts = std::map<Ngram, Count>;

inline std::vector<Token> random_text(std::mt19937& random, std::size_t length,
                                      std::uint32_t vocab) {
  std::vector<Token> text;
  for (std::size_t i = 0; i < length; ++i) {
    // Skewed, so that some contexts have many children and most have few.
    const std::uint32_t largest = 1 + random() % vocab;
    text.push_back(static_cast<Token>(random() % largest));
  }
  return text;
}

inline Counts count_all(const std::vector<Token>& text, int order) {
  Counts counts;
  for (auto start = text.begin(); start != text.end(); ++start) {
    for (auto end = start + 1; end - start <= order; ++end) {
      ++counts[{start, end}];
      if (end == text.end()) break;
    }
  }
  return counts;
}

// A map's order of n-grams of one length is that of a level.
inline StoreData to_data(const Counts& counts, int order) {
  StoreData data;
  data.root_count = 17;
  data.levels.resize(static_cast<std::size_t>(order));
  std::vector<std::vector<Ngram>> ngrams(static_cast<std::size_t>(order));
  for (const auto& [ngram, count] : counts) {
    LevelData& level = data.levels[ngram.size() - 1];
    level.tokens.push_back(ngram.back());
    level.counts.push_back(count);
    ngrams[ngram.size() - 1].push_back(ngram);
  }
  for (std::size_t depth = 1; depth < ngrams.size(); ++depth) {
    std::vector<NodeId>& children = data.levels[depth - 1].children;
    children.push_back(0);
    std::size_t child = 0;
    for (const Ngram& parent : ngrams[depth - 1]) {
      while (child < ngrams[depth].size() &&
             std::equal(parent.begin(), parent.end(), ngrams[depth][child].begin())) {
        ++child;
      }
      children.push_back(child);
    }
  }
  return data;
}

// Without about a ninth of the n-grams and all that begin with these, as pruning by anything but
// the count leaves it: suffixes are missing. With `has_zeros`, some counts are 0.
inline Counts prune(std::mt19937& random, const Counts& counts, bool has_zeros) {
  Counts kept;
  for (const auto& [ngram, count] : counts) {
    const bool has_parent =
        ngram.size() == 1 || kept.contains(Ngram(ngram.begin(), ngram.end() - 1));
    if (!has_parent || random() % 9 == 0) continue;
    kept[ngram] = has_zeros && random() % 4 == 0 ? 0 : count;
  }
  return kept;
}

}  // namespace dart::test
