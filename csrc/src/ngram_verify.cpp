// NgramStore::verify: everything that opening and looking up take on trust.
#include <algorithm>

#include "dart/ngram_store.h"

namespace dart {
namespace {

std::string level_field(int depth, const std::string& what) {
  return "level " + std::to_string(depth) + " " + what;
}

}  // namespace

void NgramStore::verify() const {
  if (mapping_ != nullptr) mapping_->expect_reads_in_order();
  const FileHeader head = header();
  const auto check_section = [&](int depth, const char* name, std::uint64_t offset,
                                 std::uint64_t words, std::uint64_t expected) {
    const std::uint64_t found = checksum(file_.subspan(offset, 8 * words));
    if (found != expected) {
      corrupt(level_field(depth, name) + " checksum", std::to_string(found),
              std::to_string(expected));
    }
  };
  for (int depth = 1; depth <= order_; ++depth) {
    const LevelRecord& record = head.levels[depth - 1];
    check_section(depth, "tokens", record.tokens_offset, tokens_layout(head, depth).words,
                  record.tokens_checksum);
    if (depth < order_) {
      check_section(depth, "children", record.children_offset, children_layout(head, depth).words,
                    record.children_checksum);
    }
    check_section(depth, "values", record.values_offset, values_layout(head, depth).words,
                  record.values_checksum);
  }
  std::uint64_t vocab_size = 0;
  for (int depth = 1; depth <= order_; ++depth) {
    verify_sequences(depth);
    verify_values(depth);
    // Tokens of a remapped level are those of the level before.
    if (!levels_[depth - 1].is_remapped) vocab_size = std::max(vocab_size, largest_code(depth) + 1);
  }
  int deepest = order_;
  while (deepest > 1 && !levels_[deepest - 1].is_remapped) --deepest;
  if (deepest > 1) {
    for (NodeId node = 0; node < levels_[0].node_count; ++node) {
      verify_codes(2, node, 0, deepest);
    }
  }
  if (num_nodes() == 0) vocab_size = 0;
  if (vocab_size != vocab_size_) {
    corrupt("vocab_size", std::to_string(vocab_size_), std::to_string(vocab_size));
  }
}

void NgramStore::verify_sequences(int depth) const {
  const Level& level = levels_[depth - 1];
  if (!level.tokens.is_consistent(true)) {
    corrupt(level_field(depth, "tokens"), "no ascending sequence",
            "the codes of siblings in ascending order");
  }
  if (depth == order_) return;
  if (!level.children.is_consistent(false)) {
    corrupt(level_field(depth, "child ranges"), "no ascending sequence",
            "ranges one after another");
  }
  const std::uint64_t nodes = levels_[depth].node_count;
  const std::uint64_t reached = level.node_count == 0 ? 0 : level.children[level.node_count - 1];
  if (reached != nodes) {
    corrupt(level_field(depth + 1, "nodes with a parent"), std::to_string(reached),
            std::to_string(nodes));
  }
}

void NgramStore::verify_values(int depth) const {
  const Level& level = levels_[depth - 1];
  if (level.codebook_size == 0) return;
  for (std::uint64_t i = 1; i < level.codebook_size; ++i) {
    const bool is_rising = is_exact_ ? level.counts[i - 1] < level.counts[i]
                                     : level.probabilities[i - 1] < level.probabilities[i];
    if (!is_rising) corrupt(level_field(depth, "codebook"), "out of order", "rising values");
  }
  if (!is_exact_) {
    const float least = level.probabilities[0];
    const float most = level.probabilities[level.codebook_size - 1];
    if (!(least >= 0.0F && most <= 1.0F)) {
      corrupt(level_field(depth, "codebook"), std::to_string(least) + ".." + std::to_string(most),
              "probabilities");
    }
  }
  for (NodeId node = 0; node < level.node_count; ++node) (void)code_of(depth, node);
}

// That the codes of a remapped level are those of children of the suffix: of the parent's children,
// in level `depth`, and of all below them down to level `deepest`. `suffix` is the parent without
// its first token, in the level before the parent's: kNoNode where that is not to be found out.
void NgramStore::verify_codes(int depth, NodeId parent, NodeId suffix, int deepest) const {
  const Level& level = levels_[depth - 1];
  const NodeRange range = children(depth - 1, parent);
  if (range.begin == range.end) return;
  const bool is_known = suffix != kNoNode;
  const NodeRange following = is_known ? children(depth - 2, suffix) : NodeRange{0, 0};
  const std::uint64_t base = range.begin == 0 ? 0 : level.tokens[range.begin - 1] + 1;
  if (level.is_remapped && is_known) {  // siblings ascend: the last has the largest code
    const std::uint64_t largest = level.tokens[range.end - 1] - base;
    if (largest >= following.end - following.begin) {
      corrupt(level_field(depth, "token") + " of node " + std::to_string(range.end - 1),
              std::to_string(largest),
              "less than the " + std::to_string(following.end - following.begin) +
                  " children of its context's suffix");
    }
  }
  if (depth == deepest) return;
  EliasFano::Cursor cursor = level.tokens.cursor(range.begin);
  for (NodeId node = range.begin; node < range.end; ++node) {
    if (node > range.begin) cursor.next();
    const std::uint64_t code = cursor.value() - base;
    NodeId next = kNoNode;
    if (level.is_remapped && is_known) {
      next = following.begin + code;
    } else if (is_known && !levels_[depth - 2].is_remapped) {
      const Match wanted = NgramStore::wanted(0, static_cast<Token>(code));
      Match match;
      if (find_children(depth - 2, following, {&wanted, 1}, {&match, 1}) > 0) next = match.child;
    }
    // A plain level above a remapped one is one whose codes are its tokens anyway, if any: what is
    // not found out there is left.
    verify_codes(depth + 1, node, next, deepest);
  }
}

std::uint64_t NgramStore::largest_code(int depth) const {
  const Level& level = levels_[depth - 1];
  if (level.node_count == 0) return 0;
  std::uint64_t largest = 0;
  std::uint64_t base = 0;
  const NodeId parents = depth == 1 ? 1 : levels_[depth - 2].node_count;
  for (NodeId parent = 0; parent < parents; ++parent) {
    const auto [begin, end] = children(depth - 1, parent);
    if (begin == end) continue;
    const std::uint64_t last = level.tokens[end - 1];
    largest = std::max(largest, last - base);
    base = last + 1;
  }
  return largest;
}

}  // namespace dart
