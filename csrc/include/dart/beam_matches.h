// The store's answers for one level of a search: all contexts of the beam at once.
//
// Contexts that several beam members end in are looked up once. The memory they lie in is asked for
// before the first is read, so that the beam waits for it about as long as one context would. Only
// candidates that could still get into the tree are looked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dart/ngram_store.h"

namespace dart {

class BeamMatches {
 public:
  // Matches of one context: the numbers begin .. end - 1, by candidate.
  struct Range {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  // `store` must outlive it.
  explicit BeamMatches(const NgramStore& store) : store_(store) {}

  // Begins a level: forgets what was looked up. `tokens` are the candidates, ascending, distinct
  // and at least 0; `ceilings`, read until the level ends, say what each changes a score by at
  // most.
  void start(std::span<const Token> tokens, std::span<const float> ceilings);
  // Adds a member of the beam; they are numbered from 0.
  void add(const State& state, float score, float threshold);
  // Looks up those added since the last time. A candidate that takes no member's score to
  // `threshold`, which never falls, is not looked for. Throws FormatError if the store proves
  // damaged.
  void look_up(float threshold);

  // Of a member's last `length` tokens.
  Range matches_of(std::size_t member, int length) const;
  const Match& operator[](std::size_t number) const { return matches_[number]; }
  std::size_t size() const { return matches_.size(); }

  // The state of a member after a candidate that was looked for.
  State state_after(std::size_t member, std::uint32_t candidate) const;

 private:
  struct Key {
    NodeId node;
    int length;
    bool operator==(const Key&) const = default;
  };
  struct Context {
    NodeId node;
    int length;
    std::size_t shorter;  // number of the context without its first token
    float best_score;     // of the members that end in it
    NodeRange children;
    Range matches;
  };

  std::size_t context_number(NodeId node, int length, std::size_t shorter, float score);
  void find_matches(Context& context, float threshold);

  const NgramStore& store_;
  std::span<const float> ceilings_;
  float highest_ceiling_ = 0;
  std::vector<Match> tokens_;  // as they are looked for
  // Number 0 is none; of the others the shorter one comes first.
  std::vector<Context> contexts_;
  std::vector<Key> keys_;             // of these, close together as all are looked through
  std::size_t looked_up_ = 1;         // of these
  std::vector<std::size_t> numbers_;  // of each member's contexts, by length
  std::vector<Match> wanted_;         // of one context
  std::vector<Match> matches_;
};

}  // namespace dart
