#include "dart/beam_matches.h"

#include <algorithm>

namespace dart {

void BeamMatches::start(std::span<const Token> tokens, std::span<const float> ceilings) {
  ceilings_ = ceilings;
  highest_ceiling_ = *std::max_element(ceilings.begin(), ceilings.end());
  tokens_.clear();
  for (const Token token : tokens) {
    tokens_.push_back(NgramStore::wanted(static_cast<std::uint32_t>(tokens_.size()), token));
  }
  contexts_.assign(1, Context{kNoNode, 0, 0, 0.0F, {}, {}});
  keys_.assign(1, Key{kNoNode, 0});
  looked_up_ = 1;
  numbers_.clear();
  matches_.clear();
}

void BeamMatches::add(const State& state, float score, float threshold) {
  const bool can_extend = score + highest_ceiling_ >= threshold;
  std::size_t number = 0;
  for (int length = 0; length < store_.order(); ++length) {
    const NodeId node = length == 0 ? 0 : state.nodes[length - 1];
    const bool is_known = can_extend && node != kNoNode;
    number = is_known ? context_number(node, length, number, score) : 0;
    numbers_.push_back(number);
  }
}

// The beam is small and mostly shares its shorter contexts: looking through all is quick.
std::size_t BeamMatches::context_number(NodeId node, int length, std::size_t shorter, float score) {
  const Key key{node, length};
  for (std::size_t number = 1; number < keys_.size(); ++number) {
    if (keys_[number] != key) continue;
    Context& known = contexts_[number];
    if (number < looked_up_ && known.best_score < score) continue;  // more is wanted of it now
    known.best_score = std::max(known.best_score, score);
    return number;
  }
  if (length > 0) store_.prefetch_children(length, node);
  contexts_.push_back({node, length, shorter, score, {}, {}});
  keys_.push_back(key);
  return contexts_.size() - 1;
}

void BeamMatches::look_up(float threshold) {
  const std::span<Context> contexts = std::span(contexts_).subspan(looked_up_);
  for (const Context& context : contexts) {
    if (context.length > 0) store_.prefetch_children_bits(context.length, context.node);
  }
  for (Context& context : contexts) {
    context.children = store_.children(context.length, context.node);
    if (context.children.begin < context.children.end) {
      store_.prefetch_tokens(context.length, context.children);
    }
  }
  for (const Context& context : contexts) {
    if (context.children.begin < context.children.end) {
      store_.prefetch_tokens_bits(context.length, context.children);
    }
  }
  for (Context& context : contexts) find_matches(context, threshold);
  for (const Context& context : contexts) {
    const std::span<Match> found = std::span(matches_).subspan(
        context.matches.begin, context.matches.end - context.matches.begin);
    store_.read_probabilities(context.length, context.node, found);
  }
  looked_up_ = contexts_.size();
}

void BeamMatches::find_matches(Context& context, float threshold) {
  std::span<const Match> possible = tokens_;
  if (store_.is_remapped(context.length)) {
    const Range shorter = contexts_[context.shorter].matches;
    possible = std::span<const Match>(matches_).subspan(shorter.begin, shorter.end - shorter.begin);
  }
  wanted_.clear();
  for (const Match& match : possible) {
    if (context.best_score + ceilings_[match.candidate] >= threshold) wanted_.push_back(match);
  }
  const std::size_t begin = matches_.size();
  matches_.resize(begin + wanted_.size());
  const std::size_t found = store_.find_children(context.length, context.children, wanted_,
                                                 std::span(matches_).subspan(begin));
  matches_.resize(begin + found);
  context.matches = {begin, matches_.size()};
}

BeamMatches::Range BeamMatches::matches_of(std::size_t member, int length) const {
  const auto order = static_cast<std::size_t>(store_.order());
  return contexts_[numbers_[member * order + static_cast<std::size_t>(length)]].matches;
}

State BeamMatches::state_after(std::size_t member, std::uint32_t candidate) const {
  State state = store_.empty_state();
  for (int length = 0; length + 1 < store_.order(); ++length) {
    const Range range = matches_of(member, length);
    const auto begin = matches_.begin() + static_cast<std::ptrdiff_t>(range.begin);
    const auto end = matches_.begin() + static_cast<std::ptrdiff_t>(range.end);
    const auto at = std::lower_bound(
        begin, end, candidate,
        [](const Match& match, std::uint32_t value) { return match.candidate < value; });
    if (at != end && at->candidate == candidate) {
      state.nodes[static_cast<std::size_t>(length)] = at->child;
    }
  }
  return state;
}

}  // namespace dart
