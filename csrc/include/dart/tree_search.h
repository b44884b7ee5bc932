// The n-gram-guided beam search that turns a draft head's candidates into a draft tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "dart/context_store.h"
#include "dart/ngram_store.h"

namespace dart {

// Candidates of every level (draft position), row-major [levels, candidates].
struct Candidates {
  std::span<const Token> tokens;         // a negative id marks a place without candidate
  std::span<const float> probabilities;  // 0..1, of that token at that level
  std::size_t levels = 0;
  std::size_t candidates = 0;  // per level
};

struct SearchParams {
  std::span<const float> level_weights;  // W, at least one per level, each in 0..1e6
  std::span<const float> logit_weights;  // G, likewise
  float ngram_weight = 0.5F;             // 0..1e6; at 0 the store is not read
  std::size_t tree_size = 60;            // drafted nodes, without the root
  std::size_t beam_width = 20;           // nodes of a level that are extended, at least 1
  std::span<const Token> eos_tokens;     // kept out of the beam while others fill it
  // Coefficients [levels, matched lengths, 3] of the acceptance model; empty: the weights above.
  std::span<const float> acceptance;
  std::size_t acceptance_lengths = 0;  // matched lengths 0, 1, .. that have coefficients
  // Counts of the text that `context` ends, or null; its state must be that of the text.
  const ContextStore* context_store = nullptr;
  // Coefficients [levels, matched lengths, 3] for its matches, used with `acceptance` only.
  std::span<const float> context_acceptance;
  std::size_t context_lengths = 0;
  float min_score = -std::numeric_limits<float>::infinity();  // nodes below are left out
};

// One entry per node in every array. Node 0 is the root (last token of the context: parent -1,
// score 0, draft probability 1, the rest 0); then by depth, within a depth by falling score.
// Parents come before children and siblings have distinct tokens.
struct Tree {
  std::vector<Token> tokens;
  std::vector<std::int32_t> parents;
  std::vector<float> scores;                  // cumulative, natural log units, weighted
  std::vector<float> draft_probabilities;     // p
  std::vector<float> ngram_probabilities;     // q; 0 when not looked up
  std::vector<std::int32_t> matched_lengths;  // tokens of context behind q; 0 when none
  std::vector<std::int32_t> ranks;            // column of the candidate in its level; -1: opened
  std::vector<float> context_probabilities;   // of the context store; 0 when it has no match
  std::vector<std::int32_t> context_lengths;  // tokens of context behind it; 0 when none
};

// With l the level of the child, all in float32:
//   score(child) = score(parent) + W_l * (G_l * ln(p + 1e-10) + ngram_weight * ln(q + 1e-10))
// without the q term at level 0, with no store, or with ngram_weight 0. Every level extends each
// beam member by all its candidates; the next beam is the beam_width best, those that are not EOS
// first; the tree is the tree_size best of everything extended so far, in the beam or not.
//
// With `acceptance`, the weights are not used, q counts at level 0, too, and the score is the log
// of the probability that the target accepts the whole path:
//   score(child) = score(parent) + ln(sigmoid(a + b * ln(p + 1e-10) + c * ln(q + 1e-10)))
// with a, b, c of the child's level and of the length m of the context that q was found with (of
// the longest known one where m is longer); without the q term where m is 0.
//
// A context store counts beside the other one. With `acceptance`, a match of length n adds
//   d + e * ln(q' + 1e-10), and g for a token that is no candidate,
// to the argument of the sigmoid, d, e, g of the child's level and n; such tokens become nodes, too
// (the store says which it opens), with p of the level's least probable candidate in the score.
// Without `acceptance` q is the larger of the two, and nothing is opened.
//
// Scores never rise along a path (weights are >= 0, p, q and sigmoid <= 1). Equal scores are
// ordered by depth, then by creation (position of the parent in its beam, then rank), so a parent
// always comes before its child and the tree is closed under parents. Of two candidates with one
// token in a level the more probable is kept, the first if equal.
//
// `store` may be null. Throws std::invalid_argument for an empty context, weights or probabilities
// out of range (NaN included; up to 1.001 is taken as rounding and cut to 1), and FormatError if
// the store turns out to be damaged.
// source: scores, beam and pool as published with fvliang/DART; tie order and duplicates are ours.
Tree search_tree(const Candidates& candidates, const NgramStore* store,
                 std::span<const Token> context, const SearchParams& params);

}  // namespace dart
