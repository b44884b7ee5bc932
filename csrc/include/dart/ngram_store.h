// The n-gram store: probabilities of candidate tokens after a context, read from a mapped file.
//
// Opening looks at the header only, so it takes the same time at any size; every index read from
// the file is checked when it is used. A damaged file therefore gives a FormatError, or numbers
// that are wrong but within bounds; verify() reads everything and finds all damage.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dart/bit_packed.h"
#include "dart/elias_fano.h"
#include "dart/mapped_file.h"
#include "dart/ngram_format.h"

namespace dart {

// What a search has to remember of its context: for every length n = 1 .. order-1 the node of the
// last n tokens, in nodes[n - 1], or kNoNode if that n-gram does not occur.
struct State {
  std::array<NodeId, kMaxOrder - 1> nodes;
};

// One of the wanted tokens among the children of a context; also one that is looked for there.
struct Match {
  std::uint32_t candidate;  // index among the wanted tokens
  std::uint32_t position;   // among the context's children
  NodeId child;             // in the next level
  float probability;        // 0 if the child counts as absent
};

// What a store knows of one token after a context.
struct Score {
  float probability;
  std::int32_t matched_length;
};

// Nodes begin .. end - 1 of a level.
struct NodeRange {
  NodeId begin;
  NodeId end;
};

// How a file is kept in memory. None of the ways waits for the disk.
enum class Residence {
  kMapped,     // the system reads the pages that are looked up, when they are, and no others
  kPreloaded,  // a thread reads the file ahead, as much of it as makes sense
  kLocked,     // a thread reads all of it, and it stays
};

// What a level of the file takes, in bytes.
struct LevelSizes {
  std::uint64_t nodes;
  std::uint64_t tokens;
  std::uint64_t children;
  std::uint64_t values;
  int value_bits;  // per node, beside the codebook
  bool is_remapped;
};

// Immutable; every const member may be called from several threads at once.
class NgramStore {
 public:
  // Maps the file. Throws FileError (missing, a directory, unreadable, may not be locked) or
  // FormatError.
  static NgramStore open(const std::string& path, Residence residence = Residence::kMapped);
  // Reads from memory the caller keeps alive, 8-byte aligned; `name` appears in messages.
  static NgramStore view(std::span<const std::byte> bytes, const std::string& name);

  int order() const { return order_; }
  // Whether counts are kept; else probabilities are rounded to those of a codebook per level.
  bool is_exact() const { return is_exact_; }
  std::uint64_t num_nodes() const;  // n-grams of all lengths, without the root
  std::uint64_t num_nodes(int depth) const { return levels_[depth - 1].node_count; }
  std::uint64_t num_bytes() const { return file_.size(); }
  std::uint64_t vocab_size() const { return vocab_size_; }
  std::int64_t root_count() const { return root_count_; }
  const std::string& path() const { return path_; }
  std::vector<LevelSizes> level_sizes() const;

  State empty_state() const;
  // The state after `token`. Any token is allowed; one that does not occur matches nothing.
  State advance(const State& state, Token token) const;
  // The state after `context`, most recent token last; only the last order-1 matter.
  State state_after(std::span<const Token> context) const;

  // The probability of `token` after the longest context that has been followed by it:
  // float32(count) * (1 / float32(context count)), in a quantised file rounded, and that context's
  // length; 0 and 0 if none. Contexts and children with count 0 are treated as absent. A quotient
  // above 1, possible only in pruned upstream files and damaged ones, is cut to 1.
  // source: counting and probability as published with fvliang/DART.
  Score score(const State& state, Token token) const;
  // The same for many tokens, in any order, together. The spans have equal length.
  void score(const State& state, std::span<const Token> tokens, std::span<float> probabilities,
             std::span<std::int32_t> matched_lengths) const;

  // Children among `tokens` (ascending, distinct, at least 0: see wanted()) of the context made of
  // the state's last `length` tokens, 0 <= length < order; by candidate, to `out` (at least as long
  // as tokens); returns how many. For length > 0, `shorter` are the matches of the context one
  // token shorter, all of them: what has not been found there need not be looked for in most files,
  // and what has is found by its position. At length 0 no probability is given.
  std::size_t match_children(const State& state, int length, std::span<const Match> tokens,
                             std::span<const Match> shorter, std::span<Match> out) const;
  // A token as it is looked for.
  static Match wanted(std::uint32_t candidate, Token token) {
    return {candidate, static_cast<std::uint32_t>(token), 0, 0.0F};
  }

  // The steps of match_children, for who has many contexts and would not wait for the memory of
  // each one: what a prefetch asks for is read by the step behind it, and the next prefetch reads
  // what the one before asked for. `node` is a context of `length` > 0 tokens; what looks for its
  // children takes `length` as match_children does.
  void prefetch_children(int length, NodeId node) const {
    levels_[length - 1].children.prefetch_hint(node == 0 ? 0 : node - 1);
  }
  void prefetch_children_bits(int length, NodeId node) const {
    levels_[length - 1].children.prefetch_bits(node == 0 ? 0 : node - 1);
  }
  // Half-open range of the context's children in level length+1; checked against that level.
  NodeRange children(int length, NodeId node) const;
  void prefetch_tokens(int length, NodeRange range) const {
    levels_[length].tokens.prefetch_hint(range.begin == 0 ? 0 : range.begin - 1);
  }
  void prefetch_tokens_bits(int length, NodeRange range) const {
    levels_[length].tokens.prefetch_bits(range.begin == 0 ? 0 : range.begin - 1);
  }
  // Whether children are looked for by where the shorter context has them, not by their token.
  bool is_remapped(int length) const { return levels_[length].is_remapped; }
  // Writes the matches among `wanted`, without probabilities; returns how many. These are tokens
  // or, in a remapped level, matches of the shorter context.
  std::size_t find_children(int length, NodeRange range, std::span<const Match> wanted,
                            std::span<Match> out) const;
  // The probabilities of matches with one context. At length 0 there are none.
  void read_probabilities(int length, NodeId context, std::span<Match> matches) const;

  // Occurrences of an n-gram, 0 if it does not occur or is longer than the order. For the empty one
  // the number of tokens counted. Throws std::invalid_argument if the file is quantised.
  std::int64_t count(std::span<const Token> ngram) const;

  // Reads the whole file: checksums, and that sequences, child ranges, codes and codebooks hold
  // together. Throws FormatError.
  void verify() const;

 private:
  struct Level {
    std::uint64_t node_count = 0;
    bool is_remapped = false;
    EliasFano tokens;
    EliasFano children;  // empty in the last level
    const Count* counts = nullptr;
    const float* probabilities = nullptr;  // one of the two is the codebook
    std::uint64_t codebook_size = 0;
    BitPacked codes;
  };

  NgramStore(std::span<const std::byte> bytes, std::string name);
  void check_header(const FileHeader& header) const;
  FileHeader header() const;
  const std::uint64_t* words_at(std::uint64_t offset) const;
  // The n-grams that end in `token`, by length from 1 to the order.
  std::array<NodeId, kMaxOrder> ends_in(const State& state, Token token) const;
  void verify_sequences(int depth) const;
  void verify_values(int depth) const;
  void verify_codes(int depth, NodeId parent, NodeId suffix, int deepest) const;
  std::uint64_t largest_code(int depth) const;
  std::uint64_t code_of(int depth, NodeId node) const;
  Count count_of(int depth, NodeId node) const;
  [[noreturn]] void corrupt(const std::string& field, const std::string& found,
                            const std::string& expected) const;

  std::shared_ptr<const MappedFile> mapping_;  // null for view()
  std::span<const std::byte> file_;
  std::string path_;
  int order_ = 0;
  bool is_exact_ = false;
  std::uint64_t vocab_size_ = 0;
  std::int64_t root_count_ = 0;
  std::array<Level, kMaxOrder> levels_;
};

}  // namespace dart
