// Counts n-grams of token sequences that fit into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dart/progress.h"
#include "dart/store_data.h"
#include "dart/window.h"

namespace dart {

// Holds all tokens: 4 bytes each and for each sequence while adding, 12 while counting. Counts are
// exact: at most 2^32 - 2 tokens (with one more per sequence) are accepted. What is counted is
// either all there is, and build() makes a store of it, or a part, which write_run() leaves for
// merge_runs().
class NgramBuilder {
 public:
  // Memory for `capacity` tokens and ends of sequences is taken at once, more where it is needed.
  // Throws std::invalid_argument unless 1 <= order <= kMaxOrder.
  explicit NgramBuilder(int order, std::size_t capacity = 0);

  // Adds one sequence. No n-gram crosses from one sequence to the next. Throws
  // std::invalid_argument for a negative token or when there are too many tokens.
  void add(std::span<const Token> sequence) { add(sequence, sequence.size()); }
  // The same for a piece of a longer one: n-grams begin at its first `starts` tokens only. What
  // follows is there to be seen by them, order - 1 tokens or up to the end of the sequence.
  void add(std::span<const Token> piece, std::size_t starts);
  // Adds offsets.size() - 1 sequences: number i is tokens[offsets[i] .. offsets[i + 1]].
  void add(std::span<const Token> tokens, std::span<const std::int64_t> offsets);

  std::uint64_t token_count() const { return token_count_; }
  // Tokens, those that no n-gram begins with, ends: what memory is taken by.
  std::size_t size() const { return text_.size(); }
  void clear();

  // Counts, for every start position, the next 1 .. order tokens (fewer at a sequence's end), and
  // keeps those of length i + 1 that occur min_counts[i] times; without `min_counts` all. Time is
  // that of sorting all positions; the result does not depend on the order of the sequences.
  // source: counting as in the published builder of fvliang/DART.
  StoreData build(std::span<const Count> min_counts = {}) const;
  // Writes the windows as a run. Throws FileError, and what `progress` throws.
  void write_run(const std::string& path, const Progress& progress = {}) const;

 private:
  void count(const std::function<void(std::span<const Token>, Count)>& visit) const;

  int order_;
  std::uint64_t token_count_ = 0;
  std::vector<Token> text_;             // the sequences, each followed by kEnd
  std::vector<std::uint64_t> skipped_;  // where no n-grams begin: from .. to, in pairs, ascending
};

}  // namespace dart
