// The n-gram store: probabilities of candidate tokens after a context, read from a mapped file.
//
// Opening looks at the header only, so it takes the same time at any size; every index read from
// the file is checked when it is used. A damaged file therefore gives a FormatError, or numbers
// that are wrong but within bounds; verify() reads everything and finds all damage.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "dart/mapped_file.h"
#include "dart/ngram_format.h"

namespace dart {

// What a search has to remember of its context: for every length n = 1 .. order-1 the node of the
// last n tokens, in nodes[n - 1], or kNoNode if that n-gram does not occur.
struct State {
  std::array<NodeId, kMaxOrder - 1> nodes;
};

// A child found by match_children: candidate index, node in the next level, probability.
struct Match {
  std::uint32_t candidate;
  NodeId child;
  float probability;
};

// Immutable; every const member may be called from several threads at once.
class NgramStore {
 public:
  // Maps the file. Throws FileError (missing, a directory, unreadable) or FormatError.
  static NgramStore open(const std::string& path);
  // Reads from memory the caller keeps alive, 8-byte aligned; `name` appears in messages.
  static NgramStore view(std::span<const std::byte> bytes, const std::string& name);

  int order() const { return order_; }
  std::uint64_t num_nodes() const;  // n-grams of all lengths, without the root
  std::uint64_t num_nodes(int depth) const { return levels_[depth - 1].node_count; }
  std::uint64_t num_bytes() const { return file_.size(); }
  std::uint64_t vocab_size() const { return vocab_size_; }
  std::int64_t root_count() const { return root_count_; }
  const std::string& path() const { return path_; }

  State empty_state() const;
  // The state after `token`. Any token is allowed; one that does not occur matches nothing.
  State advance(const State& state, Token token) const;
  // The state after `context`, most recent token last; only the last order-1 matter.
  State state_after(std::span<const Token> context) const;

  // For each token the probability after the longest context that has been followed by it:
  // float32(count) * (1 / float32(context count)), and that context's length; 0 and 0 if none.
  // Contexts and children with count 0 are treated as absent. A quotient above 1, possible only in
  // pruned upstream files and damaged ones, is cut to 1. The spans have equal length.
  // source: counting and probability as published with fvliang/DART.
  void score(const State& state, std::span<const Token> tokens, std::span<float> probabilities,
             std::span<std::int32_t> matched_lengths) const;

  // Children of `context_node` (an n-gram of length `depth`) among `sorted_tokens` (ascending,
  // distinct), with probability > 0, written to `out` (at least as long); returns how many.
  std::size_t match_children(int depth, NodeId context_node, std::span<const Token> sorted_tokens,
                             std::span<Match> out) const;

  // Occurrences of an n-gram, 0 if it does not occur or is longer than the order. For the empty one
  // the number of tokens counted.
  std::int64_t count(std::span<const Token> ngram) const;

  // Reads the whole file: checksums, child ranges, token order. Throws FormatError.
  void verify() const;

 private:
  struct Level {
    const Token* tokens = nullptr;
    const std::uint32_t* counts = nullptr;
    const NodeId* children = nullptr;  // null in the last level
    std::uint64_t node_count = 0;
  };

  NgramStore(std::span<const std::byte> bytes, std::string name);
  // Half-open range of children in level depth+1; checked against that level.
  std::pair<NodeId, NodeId> child_range(int depth, NodeId node) const;
  NodeId find_child(int depth, NodeId node, Token token) const;
  NodeId find_in_range(int depth, NodeId begin, NodeId end, Token token) const;
  float probability(int depth, NodeId child, float reciprocal) const;
  [[noreturn]] void corrupt(const std::string& field, const std::string& found,
                            const std::string& expected) const;

  MappedFile mapping_;  // empty for view()
  std::span<const std::byte> file_;
  std::string path_;
  int order_ = 0;
  std::uint64_t vocab_size_ = 0;
  std::int64_t root_count_ = 0;
  std::array<Level, kMaxOrder> levels_;
};

}  // namespace dart
