#include "dart/remapper.h"

#include <algorithm>

#include "dart/ngram_format.h"

namespace dart {
namespace {

// What a node takes at most in the arrays, if it is a run of its own.
constexpr std::size_t kNodeBytes = 24 + sizeof(Token) + sizeof(std::uint32_t) + sizeof(NodeId);
// What stays in the processor's cache: there, order does not matter.
constexpr std::size_t kCachedBytes = std::size_t{1} << 18;

}  // namespace

Remapper::Remapper(const Column<NodeId>& starts, const Column<Token>& tokens,
                   std::size_t memory_bytes, std::uint64_t nodes, const std::string& codes_path,
                   const std::string& suffixes_path, bool has_suffixes)
    : is_on_disk_(!tokens.is_in_memory()),
      has_suffixes_(has_suffixes),
      capacity_((is_on_disk_ ? memory_bytes : std::min(memory_bytes, kCachedBytes)) / kNodeBytes),
      starts_(starts),
      level_(tokens),
      codes_(codes_path, nodes),
      suffixes_(suffixes_path, has_suffixes ? nodes : 0) {
  const auto most = static_cast<std::size_t>(std::min<std::uint64_t>(capacity_, nodes));
  runs_.reserve(most);
  tokens_.reserve(most);
}

void Remapper::add(NodeId suffix, ColumnReader<Token>& tokens, NodeId begin, NodeId end) {
  if (tokens_.size() + (end - begin) > capacity_ && !tokens_.empty()) flush();
  const auto first = static_cast<std::uint32_t>(tokens_.size());
  for (NodeId node = begin; node < end; ++node) tokens_.push_back(tokens[node]);
  if (suffix == kNoNode) {
    is_closed_ = false;
  } else {
    runs_.push_back({suffix, 0, first, static_cast<std::uint32_t>(tokens_.size())});
  }
}

void Remapper::flush() {
  found_codes_.assign(tokens_.size(), 0);
  found_suffixes_.assign(has_suffixes_ ? tokens_.size() : 0, kNoNode);
  if (is_on_disk_) {
    std::sort(runs_.begin(), runs_.end(),
              [](const Run& left, const Run& right) { return left.suffix < right.suffix; });
  }
  locate();
  for (std::size_t i = 0; i < runs_.size(); ++i) look_up(runs_[i]);
  codes_.append(found_codes_);
  suffixes_.append(found_suffixes_);
  runs_.clear();
  tokens_.clear();
}

// A pass of its own, so that the processor waits for many places at a time.
void Remapper::locate() {
  for (Run& run : runs_) {
    const NodeId start = starts_[run.suffix];
    run.children = static_cast<std::uint32_t>(starts_[run.suffix + 1] - start);
    run.suffix = start;
  }
}

void Remapper::look_up(const Run& run) {
  const std::span<const Token> children = level_.range(run.suffix, run.suffix + run.children);
  auto at = children.begin();
  for (std::uint32_t i = run.begin; i < run.end; ++i) {
    const Token token = tokens_[i];
    at = std::lower_bound(at, children.end(), token);
    if (at == children.end() || *at != token) {
      is_closed_ = false;
      continue;
    }
    const auto code = static_cast<std::uint32_t>(at - children.begin());
    found_codes_[i] = code;
    if (has_suffixes_) found_suffixes_[i] = run.suffix + code;
  }
  const std::uint64_t span = std::uint64_t{found_codes_[run.end - 1]} + 1;
  universe_ = std::min(universe_ + span, kMaxUniverse + 1);
}

}  // namespace dart
