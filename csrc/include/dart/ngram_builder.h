// Counts n-grams of token sequences and makes a store of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dart/store_data.h"

namespace dart {

// Holds all tokens: 4 bytes each while adding, 12 while building, plus 20 per distinct n-gram.
// Counts are exact: at most 2^32 - 2 tokens (with one more per sequence) are accepted.
class NgramBuilder {
 public:
  // Throws std::invalid_argument unless 1 <= order <= kMaxOrder.
  explicit NgramBuilder(int order);

  // Adds one sequence. No n-gram crosses from one sequence to the next. Throws
  // std::invalid_argument for a negative token or when there are too many tokens.
  void add(std::span<const Token> sequence);
  // Adds offsets.size() - 1 sequences: number i is tokens[offsets[i] .. offsets[i + 1]].
  void add(std::span<const Token> tokens, std::span<const std::int64_t> offsets);

  // Counts, for every start position, the next 1 .. order tokens (fewer at a sequence's end).
  // Time is that of sorting all positions; the result does not depend on the order of the
  // sequences. source: counting as in the published builder of fvliang/DART.
  StoreData build() const;

 private:
  int order_;
  std::uint64_t token_count_ = 0;
  std::vector<Token> text_;  // the sequences, each followed by -1
};

}  // namespace dart
