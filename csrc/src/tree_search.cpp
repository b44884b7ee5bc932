#include "dart/tree_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>

#include "dart/beam_matches.h"

namespace dart {
namespace {

constexpr float kEpsilon = 1e-10F;  // added before a logarithm, upstream's value
constexpr float kMaxWeight = 1e6F;  // keeps every product finite
constexpr float kMaxProbability = 1.001F;
constexpr float kNoStep = 1.0F;         // no score rises
constexpr float kSigmoidSlack = 1e-5F;  // no library promises that its exp and log1p only rise
constexpr std::size_t kFirstWave = 4;   // beam members (measured with 20)
constexpr std::size_t kMaxCandidates = 1U << 16;  // so that beam position * candidates fits
constexpr std::size_t kMaxBeamWidth = 1U << 16;
constexpr std::size_t kArenaRoom = 1024;  // nodes for which nothing has to grow

float log_probability(float probability) { return std::log(probability + kEpsilon); }

float log_sigmoid(float z) {
  return z > 0.0F ? -std::log1p(std::exp(-z)) : z - std::log1p(std::exp(z));
}

// Everything ever extended that could still be in the tree.
struct Node {
  float score;
  Token token;
  std::int32_t parent;  // index into the arena; -1 is the root
  std::int32_t depth;
  std::int32_t rank;
  std::int32_t matched_length;
  std::uint64_t created;  // order within the depth
  float draft_probability;
  float ngram_probability;
  std::int32_t context_length;
  float context_probability;
  bool is_eos;
};

// A node as it is compared: mostly the score decides, and the arena is not read.
struct Ranked {
  float score;
  std::int32_t node;  // index into the arena
};

struct BeamEntry {
  std::int32_t node;  // index into the arena; -1 is the root
  float score;
  State state;
  ContextState context_state;
};

// The candidates of one level: ascending distinct tokens.
struct Level {
  std::vector<Token> tokens;
  std::vector<std::int32_t> ranks;
  std::vector<float> probabilities;
  std::vector<float> logits;    // G * ln(p + eps), or ln(p + eps) with an acceptance model
  std::vector<float> steps;     // what the score changes by where no n-gram matches
  std::vector<float> ceilings;  // what it changes by at most, whatever matches
  std::vector<char> is_eos;
  std::size_t eos_count = 0;
  float weight = 0;
  float lowest_logit = 0;  // taken for a token that is no candidate
};

class Search {
 public:
  Search(const Candidates& candidates, const NgramStore* store, const SearchParams& params)
      : candidates_(candidates),
        stride_(candidates.candidates +
                (params.context_store == nullptr ? 0 : ContextStore::kMaxOpened)),
        has_model_(!params.acceptance.empty()),
        store_(has_model_ || params.ngram_weight > 0 ? store : nullptr),
        params_(params),
        missing_ngram_(params.ngram_weight * std::log(kEpsilon)),
        threshold_(params.min_score) {
    if (store_ != nullptr) matches_.emplace(*store_);
  }

  Tree run(std::span<const Token> context) {
    BeamEntry root{-1, 0.0F, {}, {}};
    if (store_ != nullptr) root.state = store_->state_after(context);
    if (params_.context_store != nullptr) root.context_state = params_.context_store->state();
    beam_.push_back(root);
    full_beam_size_ = 1;
    arena_.reserve(kArenaRoom);
    pool_.reserve(kArenaRoom);
    if (params_.tree_size > 0) {
      for (std::size_t level = 0; level < candidates_.levels && !beam_.empty(); ++level) {
        prepare_level(level);
        if (level_.tokens.empty()) break;
        const std::size_t first = arena_.size();
        start_level();
        // The best members first: what they bring into the tree leaves the others less to look for.
        const std::size_t wave = std::min(kFirstWave, beam_.size());
        extend_beam(level, 0, wave);
        update_pool(first);
        const std::size_t second = arena_.size();
        extend_beam(level, wave, beam_.size());
        update_pool(second);
        if (level + 1 < candidates_.levels) select_beam(first);
      }
    }
    return make_tree(context.back());
  }

 private:
  void prepare_level(std::size_t level) {
    const std::size_t offset = level * candidates_.candidates;
    const auto tokens = candidates_.tokens.subspan(offset, candidates_.candidates);
    const auto probabilities = candidates_.probabilities.subspan(offset, candidates_.candidates);
    order_.clear();
    for (std::size_t rank = 0; rank < tokens.size(); ++rank) {
      const float p = probabilities[rank];
      if (!(p >= 0.0F && p <= kMaxProbability)) {
        throw std::invalid_argument("topk_probs[" + std::to_string(level) + ", " +
                                    std::to_string(rank) + "] is " + std::to_string(p) +
                                    ", expected a probability in 0..1");
      }
      if (tokens[rank] >= 0) order_.push_back(static_cast<std::int32_t>(rank));
    }
    std::sort(order_.begin(), order_.end(), [&](std::int32_t a, std::int32_t b) {
      if (tokens[a] != tokens[b]) return tokens[a] < tokens[b];
      if (probabilities[a] != probabilities[b]) return probabilities[a] > probabilities[b];
      return a < b;
    });
    level_.tokens.clear();
    level_.ranks.clear();
    level_.probabilities.clear();
    level_.logits.clear();
    level_.steps.clear();
    level_.ceilings.clear();
    level_.is_eos.clear();
    level_.eos_count = 0;
    level_.weight = has_model_ ? 1.0F : params_.level_weights[level];
    level_number_ = level;
    const bool counts_ngrams = has_model_ || (level > 0 && params_.ngram_weight > 0);
    uses_ngrams_ = store_ != nullptr && counts_ngrams;
    context_store_ = counts_ngrams ? params_.context_store : nullptr;
    level_.lowest_logit = 0.0F;
    for (const std::int32_t rank : order_) {
      if (!level_.tokens.empty() && level_.tokens.back() == tokens[rank]) continue;
      const float p = std::min(probabilities[rank], 1.0F);
      const float scale = has_model_ ? 1.0F : params_.logit_weights[level];
      const float logit = scale * log_probability(p);
      const bool is_eos = ends_text(tokens[rank]);
      level_.lowest_logit = std::min(level_.lowest_logit, logit);
      level_.tokens.push_back(tokens[rank]);
      level_.ranks.push_back(rank);
      level_.probabilities.push_back(p);
      level_.logits.push_back(logit);
      level_.steps.push_back(step(logit, 0, 0.0F, {}));
      level_.ceilings.push_back(ceiling(logit));
      level_.is_eos.push_back(is_eos ? 1 : 0);
      level_.eos_count += is_eos ? 1 : 0;
    }
  }

  bool ends_text(Token token) const {
    return std::find(params_.eos_tokens.begin(), params_.eos_tokens.end(), token) !=
           params_.eos_tokens.end();
  }

  // What a score changes by at this level; length 0 is no match, of the store or of the context.
  float step(float logit, int length, float ngram_probability, const ContextMatch& context) const {
    if (has_model_) {
      const auto known = static_cast<int>(params_.acceptance_lengths) - 1;
      const std::size_t row = level_number_ * params_.acceptance_lengths +
                              static_cast<std::size_t>(std::min(length, known));
      const float* const model = params_.acceptance.data() + 3 * row;
      float z = model[0] + model[1] * logit;
      if (length > 0) z += model[2] * log_probability(ngram_probability);
      if (context.length > 0) {
        const float* const terms = context_terms(context.length);
        z += terms[0] + terms[1] * log_probability(context.probability);
        if (context.candidate < 0) z += terms[2];
      }
      return log_sigmoid(z);
    }
    if (!uses_ngrams_ && context_store_ == nullptr) return level_.weight * logit;
    if (length == 0 && context.length == 0) return level_.weight * (logit + missing_ngram_);
    const float q = std::max(ngram_probability, context.probability);
    return level_.weight * (logit + params_.ngram_weight * log_probability(q));
  }

  // What step() gives at most, for any match of store and context; as its operations are rounded in
  // the same order, rounding takes none above.
  float ceiling(float logit) const {
    if (!has_model_) return level_.weight * logit;  // q is at most 1
    const float least = log_probability(0.0F);
    float context = 0.0F;
    for (std::size_t length = 1; context_store_ != nullptr && length < params_.context_lengths;
         ++length) {
      const float* const terms = context_terms(static_cast<int>(length));
      context = std::max(context, terms[0] + std::max(terms[1] * least, 0.0F));
    }
    float z = -std::numeric_limits<float>::infinity();
    for (std::size_t length = 0; length < params_.acceptance_lengths; ++length) {
      const float* const model =
          params_.acceptance.data() + 3 * (level_number_ * params_.acceptance_lengths + length);
      const float without = model[0] + model[1] * logit;
      z = std::max(z, without + std::max(model[2] * least, 0.0F) + context);
    }
    const float most = log_sigmoid(z);
    return most + kSigmoidSlack * (1.0F - most);
  }

  // Coefficients of the acceptance model for a match of the context store.
  const float* context_terms(int length) const {
    const auto known = static_cast<int>(params_.context_lengths) - 1;
    const std::size_t row =
        level_number_ * params_.context_lengths + static_cast<std::size_t>(std::min(length, known));
    return params_.context_acceptance.data() + 3 * row;
  }

  void start_level() {
    const std::size_t count = level_.tokens.size();
    scores_.resize(count);
    longest_matches_.resize(count);
    ngram_probabilities_.resize(count);
    matched_lengths_.resize(count);
    context_probabilities_.assign(count, 0.0F);
    context_lengths_.assign(count, 0);
    context_matches_.clear();
    match_steps_.clear();
    if (uses_ngrams_) matches_->start(level_.tokens, level_.ceilings);
  }

  // Puts every extension of the beam's members begin .. end - 1 that can still enter the tree into
  // the arena.
  void extend_beam(std::size_t level, std::size_t begin, std::size_t end) {
    if (uses_ngrams_) {
      for (std::size_t i = begin; i < end; ++i) {
        matches_->add(beam_[i].state, beam_[i].score, threshold_);
      }
      matches_->look_up(threshold_);
      match_steps_.resize(matches_->size(), kNoStep);
    }
    const std::size_t count = level_.tokens.size();
    const auto depth = static_cast<std::int32_t>(level) + 1;
    for (std::size_t position = begin; position < end; ++position) {
      const BeamEntry& entry = beam_[position];
      possible_.clear();
      std::fill(ngram_probabilities_.begin(), ngram_probabilities_.end(), 0.0F);
      std::fill(matched_lengths_.begin(), matched_lengths_.end(), 0);
      for (std::size_t i = 0; i < count; ++i) {
        if (entry.score + level_.ceilings[i] < threshold_) continue;
        possible_.push_back(static_cast<std::uint32_t>(i));
        scores_[i] = entry.score + level_.steps[i];
      }
      if (uses_ngrams_) add_ngrams(position);
      const std::uint64_t first_created = position * stride_;
      if (context_store_ != nullptr) add_context(entry, depth, first_created);
      for (const std::uint32_t i : possible_) {
        if (scores_[i] >= threshold_) {
          arena_.push_back({scores_[i], level_.tokens[i], entry.node, depth, level_.ranks[i],
                            matched_lengths_[i],
                            first_created + static_cast<std::uint64_t>(level_.ranks[i]),
                            level_.probabilities[i], ngram_probabilities_[i], context_lengths_[i],
                            context_probabilities_[i], level_.is_eos[i] != 0});
        }
      }
      for (const ContextMatch& match : context_matches_) {
        if (match.candidate < 0) break;
        context_probabilities_[match.candidate] = 0.0F;
        context_lengths_[match.candidate] = 0;
      }
    }
  }

  // Scores the possible candidates anew that the store has after the beam member's context.
  void add_ngrams(std::size_t position) {
    // Longer contexts come later and overwrite what shorter ones gave.
    for (int length = 1; length < store_->order(); ++length) {
      const BeamMatches::Range matches = matches_->matches_of(position, length);
      for (std::size_t m = matches.begin; m < matches.end; ++m) {
        const Match& match = (*matches_)[m];
        if (match.probability == 0.0F) continue;
        matched_lengths_[match.candidate] = length;
        longest_matches_[match.candidate] = m;
      }
    }
    const float score = beam_[position].score;
    for (const std::uint32_t i : possible_) {
      if (matched_lengths_[i] == 0) continue;
      const std::size_t m = longest_matches_[i];
      ngram_probabilities_[i] = (*matches_)[m].probability;
      scores_[i] = score + step_of(m, matched_lengths_[i]);
    }
  }

  // Scores what has followed the beam member's context in the text itself: candidates anew, and
  // tokens that are none as nodes of their own.
  void add_context(const BeamEntry& entry, std::int32_t depth, std::uint64_t first_created) {
    context_store_->match(entry.context_state, level_.tokens, context_matches_);
    std::uint64_t created = first_created + candidates_.candidates;
    for (const ContextMatch& match : context_matches_) {
      if (match.candidate >= 0) {
        const auto i = static_cast<std::size_t>(match.candidate);
        scores_[i] = entry.score +
                     step(level_.logits[i], matched_lengths_[i], ngram_probabilities_[i], match);
        context_probabilities_[i] = match.probability;
        context_lengths_[i] = match.length;
        continue;
      }
      if (!has_model_) break;
      Score known{0.0F, 0};
      if (uses_ngrams_) known = store_->score(entry.state, match.token);
      const float score =
          entry.score + step(level_.lowest_logit, known.matched_length, known.probability, match);
      if (score >= threshold_) {
        arena_.push_back({score, match.token, entry.node, depth, -1, known.matched_length, created,
                          0.0F, known.probability, match.length, match.probability,
                          ends_text(match.token)});
      }
      ++created;
    }
  }

  // What a match changes a score by; most are overwritten by longer ones before they matter.
  float step_of(std::size_t m, int length) {
    float& known = match_steps_[m];
    if (known == kNoStep) {
      const Match& match = (*matches_)[m];
      known = step(level_.logits[match.candidate], length, match.probability, {});
    }
    return known;
  }

  // The state of the beam member at `position` after a token.
  State next_state(std::size_t position, Token token) const {
    const State& before = beam_[position].state;
    const auto found = std::lower_bound(level_.tokens.begin(), level_.tokens.end(), token);
    const bool is_candidate = found != level_.tokens.end() && *found == token;
    if (!uses_ngrams_ || !is_candidate) return store_->advance(before, token);
    // All that could be looked up has been.
    return matches_->state_after(position,
                                 static_cast<std::uint32_t>(found - level_.tokens.begin()));
  }

  Ranked ranked(std::size_t node) const {
    return {arena_[node].score, static_cast<std::int32_t>(node)};
  }

  // Total order of the tree's nodes: better first, a parent always before its child.
  bool is_better(Ranked a, Ranked b) const {
    if (a.score != b.score) return a.score > b.score;
    const Node& x = arena_[a.node];
    const Node& y = arena_[b.node];
    if (x.depth != y.depth) return x.depth < y.depth;
    return x.created < y.created;
  }

  // Keeps the tree_size best. What is worse than the last of them cannot enter the tree any more,
  // and neither can its descendants, so later levels skip it.
  void update_pool(std::size_t first) {
    for (std::size_t i = first; i < arena_.size(); ++i) pool_.push_back(ranked(i));
    if (pool_.size() < params_.tree_size) return;
    const auto last = pool_.begin() + static_cast<std::ptrdiff_t>(params_.tree_size) - 1;
    std::nth_element(pool_.begin(), last, pool_.end(),
                     [this](Ranked a, Ranked b) { return is_better(a, b); });
    threshold_ = last->score;
    pool_.resize(params_.tree_size);
  }

  // The next beam from the nodes just made. Extensions that were skipped still count when it is
  // decided whether there is room for EOS, so that skipping never changes the tree.
  void select_beam(std::size_t first) {
    const std::uint64_t others = full_beam_size_ * (level_.tokens.size() - level_.eos_count);
    const std::uint64_t all = full_beam_size_ * level_.tokens.size();
    const std::uint64_t room_for_eos =
        others < params_.beam_width ? params_.beam_width - others : 0;
    full_beam_size_ = std::min<std::uint64_t>(all, params_.beam_width);

    selected_.clear();
    selected_eos_.clear();
    for (std::size_t i = first; i < arena_.size(); ++i) {
      if (arena_[i].score < threshold_) continue;
      (arena_[i].is_eos ? selected_eos_ : selected_).push_back(ranked(i));
    }
    keep_best(selected_, params_.beam_width);
    keep_best(selected_eos_, room_for_eos);
    selected_.insert(selected_.end(), selected_eos_.begin(), selected_eos_.end());

    next_beam_.clear();
    for (const auto [score, node] : selected_) {
      BeamEntry entry{node, score, {}, {}};
      const std::size_t position = arena_[node].created / stride_;
      if (store_ != nullptr) entry.state = next_state(position, arena_[node].token);
      if (params_.context_store != nullptr) {
        entry.context_state =
            params_.context_store->advance(beam_[position].context_state, arena_[node].token);
      }
      next_beam_.push_back(entry);
    }
    beam_.swap(next_beam_);
  }

  // Cuts `nodes` to its `count` best, in order.
  void keep_best(std::vector<Ranked>& nodes, std::uint64_t count) const {
    const auto better = [this](Ranked a, Ranked b) { return is_better(a, b); };
    if (count == 0) {
      nodes.clear();
    } else if (nodes.size() > count) {
      std::nth_element(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(count) - 1,
                       nodes.end(), better);
      nodes.resize(count);
    }
    std::sort(nodes.begin(), nodes.end(), better);
  }

  Tree make_tree(Token root) {
    std::sort(pool_.begin(), pool_.end(), [this](Ranked a, Ranked b) {
      const std::int32_t x = arena_[a.node].depth;
      const std::int32_t y = arena_[b.node].depth;
      return x != y ? x < y : is_better(a, b);
    });
    const std::size_t size = pool_.size() + 1;
    Tree tree;
    tree.tokens.reserve(size);
    tree.parents.reserve(size);
    tree.scores.reserve(size);
    tree.draft_probabilities.reserve(size);
    tree.ngram_probabilities.reserve(size);
    tree.matched_lengths.reserve(size);
    tree.ranks.reserve(size);
    tree.context_probabilities.reserve(size);
    tree.context_lengths.reserve(size);
    const auto append = [&tree](const Node& node, std::int32_t parent) {
      tree.tokens.push_back(node.token);
      tree.parents.push_back(parent);
      tree.scores.push_back(node.score);
      tree.draft_probabilities.push_back(node.draft_probability);
      tree.ngram_probabilities.push_back(node.ngram_probability);
      tree.matched_lengths.push_back(node.matched_length);
      tree.ranks.push_back(node.rank);
      tree.context_probabilities.push_back(node.context_probability);
      tree.context_lengths.push_back(node.context_length);
    };
    append({0.0F, root, -1, 0, 0, 0, 0, 1.0F, 0.0F, 0, 0.0F, false}, -1);
    std::vector<std::int32_t> index_of(arena_.size(), -1);
    for (const Ranked& each : pool_) {
      const Node& node = arena_[each.node];
      index_of[each.node] = static_cast<std::int32_t>(tree.tokens.size());
      append(node, node.parent < 0 ? 0 : index_of[node.parent]);
    }
    return tree;
  }

  const Candidates& candidates_;
  const std::uint64_t stride_;  // of `created`: extensions a beam member can have
  const bool has_model_;
  const NgramStore* const store_;  // null when no n-gram is to be looked up
  const SearchParams& params_;
  const float missing_ngram_;  // the n-gram term of a candidate that no context matches

  std::vector<Node> arena_;
  std::vector<BeamEntry> beam_;
  std::vector<Ranked> pool_;  // the tree_size best nodes so far
  float threshold_;
  std::uint64_t full_beam_size_ = 0;  // of the beam as it would be without skipping
  bool uses_ngrams_ = false;
  const ContextStore* context_store_ = nullptr;  // null where it counts for nothing
  std::size_t level_number_ = 0;

  // Scratch of one level, kept to avoid allocating again.
  Level level_;
  std::vector<std::int32_t> order_;
  std::optional<BeamMatches> matches_;         // where there is a store
  std::vector<ContextMatch> context_matches_;  // of one beam member
  std::vector<float> match_steps_;             // kNoStep until somebody asks
  std::vector<float> scores_;
  std::vector<float> ngram_probabilities_;
  std::vector<std::int32_t> matched_lengths_;
  std::vector<float> context_probabilities_;
  std::vector<std::int32_t> context_lengths_;
  std::vector<std::size_t> longest_matches_;  // of each candidate that is touched
  std::vector<std::uint32_t> possible_;       // candidates that can bring a member into the tree
  std::vector<Ranked> selected_;
  std::vector<Ranked> selected_eos_;
  std::vector<BeamEntry> next_beam_;
};

void check_weight(const std::string& name, float value) {
  if (!(value >= 0.0F && value <= kMaxWeight)) {
    throw std::invalid_argument(name + " is " + std::to_string(value) + ", expected 0..1e6");
  }
}

void check_coefficients(const std::string& name, std::span<const float> values) {
  for (const float value : values) {
    if (!(std::abs(value) <= kMaxWeight)) {
      throw std::invalid_argument(name + " holds " + std::to_string(value) +
                                  ", expected -1e6..1e6");
    }
  }
}

void check_weights(const std::string& name, std::span<const float> weights, std::size_t levels) {
  if (weights.size() < levels) {
    throw std::invalid_argument(name + " has " + std::to_string(weights.size()) +
                                " values, expected one for each of " + std::to_string(levels) +
                                " levels");
  }
  for (const float weight : weights.first(levels)) check_weight(name, weight);
}

}  // namespace

Tree search_tree(const Candidates& candidates, const NgramStore* store,
                 std::span<const Token> context, const SearchParams& params) {
  if (context.empty()) {
    throw std::invalid_argument("context is empty, expected at least the token of the root");
  }
  if (candidates.candidates > kMaxCandidates ||
      candidates.levels > std::numeric_limits<std::int32_t>::max() / kMaxCandidates) {
    throw std::invalid_argument("too many candidates or levels, expected at most 65536 and 32767");
  }
  const std::size_t total = candidates.levels * candidates.candidates;
  if (candidates.tokens.size() != total || candidates.probabilities.size() != total) {
    throw std::invalid_argument("tokens and probabilities are not [levels, candidates]");
  }
  if (params.beam_width < 1 || params.beam_width > kMaxBeamWidth) {
    throw std::invalid_argument("beam_width is " + std::to_string(params.beam_width) +
                                ", expected 1..65536");
  }
  if (!params.acceptance.empty()) {
    const std::size_t lengths = params.acceptance_lengths;
    if (lengths == 0 || params.acceptance.size() / lengths / 3 < candidates.levels) {
      throw std::invalid_argument("acceptance has " + std::to_string(params.acceptance.size()) +
                                  " values, expected three for each matched length of each of " +
                                  std::to_string(candidates.levels) + " levels");
    }
    check_coefficients("acceptance", params.acceptance);
  }
  if (params.context_store != nullptr && !params.acceptance.empty()) {
    const std::size_t lengths = params.context_lengths;
    if (lengths == 0 || params.context_acceptance.size() / lengths / 3 < candidates.levels) {
      throw std::invalid_argument("context_acceptance has " +
                                  std::to_string(params.context_acceptance.size()) +
                                  " values, expected three for each matched length of each of " +
                                  std::to_string(candidates.levels) + " levels");
    }
    check_coefficients("context_acceptance", params.context_acceptance);
  }
  check_weight("ngram_weight", params.ngram_weight);
  check_weights("level_weights", params.level_weights, candidates.levels);
  check_weights("logit_weights", params.logit_weights, candidates.levels);
  return Search(candidates, store, params).run(context);
}

}  // namespace dart
