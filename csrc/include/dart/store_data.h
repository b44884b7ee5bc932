// A store's n-grams as plain arrays: what builder and importer make and the encoder takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace dart {

using Token = std::int32_t;
using NodeId = std::uint64_t;  // index into one level
using Count = std::uint64_t;

inline constexpr int kMaxOrder = 8;
inline constexpr NodeId kNoNode = ~NodeId{0};
inline constexpr std::uint64_t kMaxLevelNodes = std::uint64_t{1} << 40;

// The n-grams of one length. Nodes are ordered by parent, siblings by token.
struct LevelData {
  std::vector<Token> tokens;
  std::vector<Count> counts;     // 0 = treated as absent
  std::vector<NodeId> children;  // node i has children children[i] .. children[i + 1] of the next
                                 // level; one more than nodes, empty in the last level
};

// The same, wherever it lies: in memory or in mapped files.
struct LevelView {
  LevelView() = default;
  LevelView(const LevelData& level)  // NOLINT: meant to convert
      : tokens(level.tokens), counts(level.counts), children(level.children) {}

  std::span<const Token> tokens;
  std::span<const Count> counts;
  std::span<const NodeId> children;
};

// levels[i] holds the (i+1)-grams. The root has no node: its children are all of level 1.
struct StoreData {
  std::int64_t root_count = 0;  // tokens counted; may be negative in pruned upstream files
  std::vector<LevelData> levels;
};

}  // namespace dart
