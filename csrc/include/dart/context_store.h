// Counts of the n-grams of one growing text: the prompt and what has been generated behind it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dart/ngram_format.h"

namespace dart {

// What a search has to remember of its path: for every length n = 1 .. order-1 the node of the last
// n tokens, in nodes[n - 1], or 0 if that n-gram does not occur.
struct ContextState {
  std::array<std::uint32_t, kMaxOrder - 1> nodes{};
};

// A token that has followed a context. The probability is count / (tokens that followed + 1): what
// has been seen once is not certain.
struct ContextMatch {
  Token token;
  std::int32_t candidate;  // index of the candidate, -1 of a token that is none
  std::int32_t length;     // of the longest context that it has followed
  float probability;
};

// A trie in a hash table; some 30 bytes a node, at most `order` nodes a token. One text's own: not
// to be changed while another thread reads it.
class ContextStore {
 public:
  // Contexts shorter than this, or with more followers, open no tokens of their own.
  static constexpr int kOpenLength = 2;
  static constexpr std::uint32_t kOpenFollowers = 32;
  static constexpr std::size_t kMaxOpened = 4;  // tokens a context

  // Throws std::invalid_argument unless 1 <= order <= kMaxOrder.
  explicit ContextStore(int order);

  // Appends tokens and counts the n-grams that end in them. Throws std::invalid_argument for a
  // negative token, or more than 2^32 / order tokens in all; the text is then as it was.
  void append(std::span<const Token> tokens);

  int order() const { return order_; }
  std::uint64_t num_tokens() const { return num_tokens_; }
  std::uint64_t num_nodes() const { return nodes_.size() - 1; }  // distinct n-grams

  // The state after the text, and the one after a further token that is not appended.
  const ContextState& state() const { return state_; }
  ContextState advance(const ContextState& state, Token token) const;

  // The candidates (ascending, distinct) that have followed the state's contexts, in their order;
  // behind them up to kMaxOpened tokens that are no candidates, longest context first, then the
  // most frequent, then the smallest. Overwrites `out`.
  void match(const ContextState& state, std::span<const Token> candidates,
             std::vector<ContextMatch>& out) const;

 private:
  struct Node {
    std::uint32_t parent;
    Token token;
    std::uint32_t count;        // occurrences of the n-gram
    std::uint32_t followed;     // by how many tokens: the count, less one at the text's end
    std::uint32_t followers;    // distinct ones
    std::uint32_t first_child;  // 0: none
    std::uint32_t next_sibling;
  };

  std::uint32_t find(std::uint32_t parent, Token token) const;
  std::uint32_t find_or_add(std::uint32_t parent, Token token);
  std::size_t slot(std::uint32_t parent, Token token) const;
  void grow();
  void open(const ContextState& state, int longest, std::span<const Token> candidates,
            std::vector<ContextMatch>& out) const;

  int order_;
  std::uint64_t num_tokens_ = 0;
  ContextState state_;
  std::vector<Node> nodes_;           // nodes_[0] is the root
  std::vector<std::uint32_t> slots_;  // open addressing: nodes by parent and token, 0: free
};

}  // namespace dart
