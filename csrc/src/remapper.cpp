#include "dart/remapper.h"

#include <algorithm>

#include "dart/ngram_format.h"

namespace dart {
namespace {

// What a node takes at most in the arrays, if it is a run of its own.
constexpr std::size_t kNodeBytes = 16 + sizeof(Token) + sizeof(std::uint32_t) + sizeof(NodeId);
// What stays in the processor's cache: there, order does not matter.
constexpr std::size_t kCachedBytes = std::size_t{1} << 18;

}  // namespace

Remapper::Remapper(const Column<NodeId>& starts, const Column<Token>& tokens,
                   std::size_t memory_bytes, const std::string& codes_path,
                   const std::string& suffixes_path, bool has_suffixes)
    : is_on_disk_(!tokens.is_in_memory()),
      has_suffixes_(has_suffixes),
      capacity_((is_on_disk_ ? memory_bytes : std::min(memory_bytes, kCachedBytes)) / kNodeBytes),
      starts_(starts),
      level_(tokens),
      codes_(codes_path),
      suffixes_(suffixes_path) {
  runs_.reserve(capacity_);
  tokens_.reserve(capacity_);
}

void Remapper::add(NodeId suffix, ColumnReader<Token>& tokens, NodeId begin, NodeId end) {
  if (tokens_.size() + (end - begin) > capacity_ && !tokens_.empty()) flush();
  const auto first = static_cast<std::uint32_t>(tokens_.size());
  for (NodeId node = begin; node < end; ++node) tokens_.push_back(tokens[node]);
  runs_.push_back({suffix, first, static_cast<std::uint32_t>(tokens_.size())});
}

void Remapper::flush() {
  found_codes_.assign(tokens_.size(), 0);
  found_suffixes_.assign(has_suffixes_ ? tokens_.size() : 0, kNoNode);
  if (is_on_disk_) {
    std::sort(runs_.begin(), runs_.end(),
              [](const Run& left, const Run& right) { return left.suffix < right.suffix; });
  }
  for (const Run& run : runs_) look_up(run);
  codes_.append(found_codes_);
  suffixes_.append(found_suffixes_);
  runs_.clear();
  tokens_.clear();
}

void Remapper::look_up(const Run& run) {
  if (run.suffix == kNoNode) {
    is_closed_ = false;
    return;
  }
  const NodeId start = starts_[run.suffix];
  const std::span<const Token> children = level_.range(start, starts_[run.suffix + 1]);
  auto at = children.begin();
  for (std::uint32_t i = run.begin; i < run.end; ++i) {
    at = std::lower_bound(at, children.end(), tokens_[i]);
    if (at == children.end() || *at != tokens_[i]) {
      is_closed_ = false;
      continue;
    }
    const auto code = static_cast<std::uint32_t>(at - children.begin());
    found_codes_[i] = code;
    if (has_suffixes_) found_suffixes_[i] = start + code;
  }
  const std::uint64_t span = std::uint64_t{found_codes_[run.end - 1]} + 1;
  universe_ = std::min(universe_ + span, kMaxUniverse + 1);
}

}  // namespace dart
