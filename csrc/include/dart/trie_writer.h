// From sorted windows to the levels of a store.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include "dart/store_data.h"
#include "dart/window.h"

namespace dart {

// Takes windows in ascending order and writes each n-gram when the last window that begins with it
// has been seen: every level then receives its nodes grouped by parent and sorted, which is the
// order the file needs. `Levels` is a container of levels, which have add(token, count,
// children_end) and count(), the nodes so far.
//
// Of the n-grams of length i + 1 those with min_counts[i] occurrences are kept. These may not fall
// with the length: then the contexts and the suffixes of what is kept are kept, too.
template <typename Levels>
class TrieWriter {
 public:
  // Throws std::invalid_argument for minimal counts that fall or are not one per level.
  TrieWriter(Levels& levels, std::span<const Count> min_counts)
      : levels_(levels),
        min_counts_(min_counts.begin(), min_counts.end()),
        path_(levels.size()),
        counts_(levels.size()) {
    if (min_counts_.size() != levels.size() ||
        !std::is_sorted(min_counts_.begin(), min_counts_.end())) {
      throw std::invalid_argument("there must be one minimal count per level, none below another");
    }
  }

  // The same window may come several times in a row.
  void add(std::span<const Token> window, Count count) {
    std::size_t same = 0;
    while (same < length_ && path_[same] == window[same]) ++same;
    close(same);
    while (length_ < window.size() && window[length_] != kEnd) {
      path_[length_] = window[length_];
      counts_[length_++] = 0;
    }
    for (std::size_t i = 0; i < length_; ++i) counts_[i] += count;
  }
  void finish() { close(0); }

 private:
  void close(std::size_t length) {
    while (length_ > length) {
      const std::size_t depth = --length_;
      if (counts_[depth] < min_counts_[depth]) continue;
      const bool is_last = depth + 1 == levels_.size();
      levels_[depth].add(path_[depth], counts_[depth], is_last ? 0 : levels_[depth + 1].count());
    }
  }

  Levels& levels_;
  std::vector<Count> min_counts_;
  std::vector<Token> path_;  // the window added last, without its end
  std::vector<Count> counts_;
  std::size_t length_ = 0;  // of path_ and counts_
};

}  // namespace dart
