#include "dart/context_store.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace dart {
namespace {

constexpr std::size_t kFirstSlots = 64;  // a power of two, like every size after it

}  // namespace

ContextStore::ContextStore(int order) : order_(order), slots_(kFirstSlots, 0) {
  if (order < 1 || order > kMaxOrder) {
    throw std::invalid_argument("order is " + std::to_string(order) + ", expected 1.." +
                                std::to_string(kMaxOrder));
  }
  nodes_.push_back({});
}

void ContextStore::append(std::span<const Token> tokens) {
  for (const Token token : tokens) {
    if (token < 0) {
      throw std::invalid_argument("token is " + std::to_string(token) + ", expected 0 or more");
    }
  }
  const std::uint64_t limit = std::numeric_limits<std::uint32_t>::max() / order_;
  if (tokens.size() > limit - num_tokens_) {
    throw std::invalid_argument("the text is too long, expected at most " + std::to_string(limit) +
                                " tokens");
  }
  for (const Token token : tokens) {
    ContextState next;
    for (int length = 0; length < order_; ++length) {
      const std::uint32_t parent = length == 0 ? 0 : state_.nodes[length - 1];
      if (length > 0 && parent == 0) break;  // the text is not that long yet
      const std::uint32_t node = find_or_add(parent, token);
      ++nodes_[node].count;
      ++nodes_[parent].followed;
      if (length + 1 < order_) next.nodes[length] = node;
    }
    state_ = next;
    ++num_tokens_;
  }
}

ContextState ContextStore::advance(const ContextState& state, Token token) const {
  ContextState next;
  for (int length = 0; length + 1 < order_; ++length) {
    const std::uint32_t parent = length == 0 ? 0 : state.nodes[length - 1];
    if (length > 0 && parent == 0) break;
    const std::uint32_t node = find(parent, token);
    // What the shorter context does not know, the longer one does not either.
    if (node == 0) break;
    next.nodes[length] = node;
  }
  return next;
}

void ContextStore::match(const ContextState& state, std::span<const Token> candidates,
                         std::vector<ContextMatch>& out) const {
  out.clear();
  int longest = 0;
  while (longest + 1 < order_ && state.nodes[longest] != 0 &&
         nodes_[state.nodes[longest]].followed > 0) {
    ++longest;
  }
  if (longest == 0) return;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    // Found after a context means found after all shorter ones: from the shortest on, until none.
    ContextMatch match{candidates[i], static_cast<std::int32_t>(i), 0, 0.0F};
    for (int length = 1; length <= longest; ++length) {
      const Node& context = nodes_[state.nodes[length - 1]];
      const std::uint32_t child = find(state.nodes[length - 1], candidates[i]);
      if (child == 0) break;
      match.length = length;
      match.probability =
          static_cast<float>(nodes_[child].count) / static_cast<float>(context.followed + 1);
    }
    if (match.length > 0) out.push_back(match);
  }
  open(state, longest, candidates, out);
}

void ContextStore::open(const ContextState& state, int longest, std::span<const Token> candidates,
                        std::vector<ContextMatch>& out) const {
  const std::size_t begin = out.size();
  for (int length = longest; length >= kOpenLength; --length) {
    const Node& context = nodes_[state.nodes[length - 1]];
    if (context.followers > kOpenFollowers) break;  // shorter ones have no fewer
    const std::size_t first = out.size();
    for (std::uint32_t child = context.first_child; child != 0;
         child = nodes_[child].next_sibling) {
      const Token token = nodes_[child].token;
      if (std::binary_search(candidates.begin(), candidates.end(), token)) continue;
      const auto known =
          std::find_if(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(),
                       [token](const ContextMatch& match) { return match.token == token; });
      if (known != out.end()) continue;
      out.push_back(
          {token, -1, length,
           static_cast<float>(nodes_[child].count) / static_cast<float>(context.followed + 1)});
    }
    std::sort(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(),
              [](const ContextMatch& a, const ContextMatch& b) {
                return a.probability != b.probability ? a.probability > b.probability
                                                      : a.token < b.token;
              });
    if (out.size() - begin >= kMaxOpened) break;
  }
  if (out.size() - begin > kMaxOpened) out.resize(begin + kMaxOpened);
}

std::size_t ContextStore::slot(std::uint32_t parent, Token token) const {
  // The finaliser of MurmurHash3's 64-bit variant.
  std::uint64_t key = std::uint64_t{parent} << 32 | static_cast<std::uint32_t>(token);
  key = (key ^ (key >> 33)) * 0xFF51AFD7ED558CCDU;
  key = (key ^ (key >> 33)) * 0xC4CEB9FE1A85EC53U;
  key ^= key >> 33;
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = key & mask;
  while (slots_[at] != 0 &&
         (nodes_[slots_[at]].parent != parent || nodes_[slots_[at]].token != token)) {
    at = (at + 1) & mask;
  }
  return at;
}

std::uint32_t ContextStore::find(std::uint32_t parent, Token token) const {
  return slots_[slot(parent, token)];
}

std::uint32_t ContextStore::find_or_add(std::uint32_t parent, Token token) {
  std::size_t at = slot(parent, token);
  if (slots_[at] != 0) return slots_[at];
  if (2 * nodes_.size() >= slots_.size()) {
    grow();
    at = slot(parent, token);
  }
  const auto node = static_cast<std::uint32_t>(nodes_.size());
  nodes_.push_back({parent, token, 0, 0, 0, 0, nodes_[parent].first_child});
  nodes_[parent].first_child = node;
  ++nodes_[parent].followers;
  slots_[at] = node;
  return node;
}

void ContextStore::grow() {
  slots_.assign(2 * slots_.size(), 0);
  for (std::uint32_t node = 1; node < nodes_.size(); ++node) {
    slots_[slot(nodes_[node].parent, nodes_[node].token)] = node;
  }
}

}  // namespace dart
