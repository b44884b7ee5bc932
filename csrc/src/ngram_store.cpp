#include "dart/ngram_store.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "dart/errors.h"

namespace dart {
namespace {

const char* const kRemedy = "build the file again with `python -m dart ngram build` or `import`";

// Children per candidate up to which walking both sorted lists beats one binary search per
// candidate (measured with 25 candidates).
constexpr std::size_t kMergeRatio = 2;

std::string number(std::uint64_t value) { return std::to_string(value); }

std::string level_field(int depth, const char* what) {
  return "level " + std::to_string(depth) + " " + what;
}

// Whether the bytes have the size and head of an upstream `.trie`, which has no magic of its own:
// order, node count, then 36 bytes per node less the root's entry in a parent.
bool looks_like_trie(std::span<const std::byte> bytes) {
  std::uint64_t head[2] = {};
  if (bytes.size() < 40) return false;
  std::memcpy(head, bytes.data(), sizeof(head));
  return head[0] >= 1 && head[0] <= 64 && head[1] >= 1 && head[1] <= bytes.size() / 24 &&
         bytes.size() == 36 * head[1] + 4;
}

}  // namespace

NgramStore NgramStore::open(const std::string& path) {
  MappedFile mapping(path, "an n-gram store file",
                     "give the path of a file made by `python -m dart ngram build` or `import`");
  NgramStore store(mapping.bytes(), path);
  store.mapping_ = std::move(mapping);
  return store;
}

NgramStore NgramStore::view(std::span<const std::byte> bytes, const std::string& name) {
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % 8 != 0) {
    throw std::invalid_argument("the bytes of a store must be 8-byte aligned");
  }
  return NgramStore(bytes, name);
}

NgramStore::NgramStore(std::span<const std::byte> bytes, std::string name)
    : file_(bytes), path_(std::move(name)) {
  if (looks_like_trie(bytes)) {
    throw FormatError(path_, "format", "an upstream .trie file", "an n-gram store file",
                      "import it first: python -m dart ngram import " + path_ + " DESTINATION");
  }
  if (bytes.size() >= sizeof(kMagic) && std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    corrupt("magic", "not that of an n-gram store", "DARTNGRM");
  }
  if (bytes.size() < sizeof(FileHeader)) {
    corrupt("file size", number(bytes.size()) + " bytes",
            "at least a header of " + number(sizeof(FileHeader)) + " bytes");
  }
  FileHeader header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.endian_mark != kEndianMark) {
    corrupt("endian mark", number(header.endian_mark), number(kEndianMark) + " (little-endian)");
  }
  if (header.version != kFormatVersion) {
    corrupt("version", number(header.version), number(kFormatVersion));
  }
  if (header.order < 1 || header.order > kMaxOrder) {
    corrupt("order", number(header.order), "1.." + number(kMaxOrder));
  }
  const std::uint64_t expected_checksum = header_checksum(header);
  if (header.header_checksum != expected_checksum) {
    corrupt("header checksum", number(header.header_checksum), number(expected_checksum));
  }
  if (header.vocab_size > 0x80000000ULL) {
    corrupt("vocab_size", number(header.vocab_size), "at most 2^31");
  }
  FileHeader expected = header;
  for (std::uint32_t i = 0; i < kMaxOrder; ++i) {
    LevelRecord& level = expected.levels[i];
    if (i >= header.order) {
      level = LevelRecord{};
    } else if (level.node_count > kMaxLevelNodes) {
      corrupt(level_field(static_cast<int>(i) + 1, "node count"), number(level.node_count),
              "at most " + number(kMaxLevelNodes));
    }
  }
  lay_out(expected);
  for (std::uint32_t i = 0; i < kMaxOrder; ++i) {
    if (std::memcmp(&expected.levels[i], &header.levels[i], sizeof(LevelRecord)) != 0) {
      corrupt(level_field(static_cast<int>(i) + 1, "section offset"), "inconsistent",
              "the offset that follows from the node counts");
    }
  }
  if (header.file_bytes != expected.file_bytes) {
    corrupt("file_bytes", number(header.file_bytes), number(expected.file_bytes));
  }
  if (header.file_bytes != bytes.size()) {
    corrupt("file size", number(bytes.size()) + " bytes", number(header.file_bytes) + " bytes");
  }

  order_ = static_cast<int>(header.order);
  vocab_size_ = header.vocab_size;
  root_count_ = header.root_count;
  for (int i = 0; i < order_; ++i) {
    const LevelRecord& record = header.levels[i];
    const std::byte* base = bytes.data();
    levels_[i].node_count = record.node_count;
    levels_[i].tokens = reinterpret_cast<const Token*>(base + record.tokens_offset);
    levels_[i].counts = reinterpret_cast<const std::uint32_t*>(base + record.counts_offset);
    if (i + 1 < order_) {
      levels_[i].children = reinterpret_cast<const NodeId*>(base + record.children_offset);
    }
  }
}

void NgramStore::corrupt(const std::string& field, const std::string& found,
                         const std::string& expected) const {
  throw FormatError(path_, field, found, expected, kRemedy);
}

std::uint64_t NgramStore::num_nodes() const {
  std::uint64_t total = 0;
  for (int depth = 1; depth <= order_; ++depth) total += num_nodes(depth);
  return total;
}

std::pair<NodeId, NodeId> NgramStore::child_range(int depth, NodeId node) const {
  const Level& level = levels_[depth - 1];
  if (node >= level.node_count) {
    throw std::invalid_argument("the state belongs to another n-gram store");
  }
  const NodeId begin = level.children[node];
  const NodeId end = level.children[node + std::size_t{1}];
  if (begin > end || end > levels_[depth].node_count) {
    corrupt(level_field(depth, "child range") + " of node " + number(node),
            number(begin) + ".." + number(end),
            "a rising range within 0.." + number(levels_[depth].node_count));
  }
  return {begin, end};
}

// Lower bound over ascending tokens; on a damaged file the answer is wrong, not out of range.
// Masked additions instead of branches: the comparisons cannot be predicted, and without
// mispredictions the processor overlaps the memory reads of consecutive searches (twice as fast,
// measured).
NodeId NgramStore::find_in_range(int depth, NodeId begin, NodeId end, Token token) const {
  const Token* const tokens = levels_[depth - 1].tokens;
  const Token* first = tokens + begin;
  std::size_t length = end - begin;
  if (length == 0) return kNoNode;
  while (length > 1) {
    const std::size_t half = length / 2;
    first += half & (std::size_t{0} - static_cast<std::size_t>(first[half - 1] < token));
    length -= half;
  }
  return *first == token ? static_cast<NodeId>(first - tokens) : kNoNode;
}

NodeId NgramStore::find_child(int depth, NodeId node, Token token) const {
  if (depth == 0) {
    return find_in_range(1, 0, static_cast<NodeId>(levels_[0].node_count), token);
  }
  const auto [begin, end] = child_range(depth, node);
  return find_in_range(depth + 1, begin, end, token);
}

float NgramStore::probability(int depth, NodeId child, float reciprocal) const {
  const float value = static_cast<float>(levels_[depth - 1].counts[child]) * reciprocal;
  return std::min(value, 1.0F);
}

State NgramStore::empty_state() const {
  State state;
  state.nodes.fill(kNoNode);
  return state;
}

State NgramStore::advance(const State& state, Token token) const {
  State next = empty_state();
  if (token < 0) return next;
  for (int length = 1; length < order_; ++length) {
    if (length == 1) {
      next.nodes[0] = find_child(0, 0, token);
    } else if (state.nodes[length - 2] != kNoNode) {
      next.nodes[length - 1] = find_child(length - 1, state.nodes[length - 2], token);
    }
  }
  return next;
}

State NgramStore::state_after(std::span<const Token> context) const {
  const std::size_t useful = std::min(context.size(), static_cast<std::size_t>(order_ - 1));
  State state = empty_state();
  for (const Token token : context.last(useful)) state = advance(state, token);
  return state;
}

void NgramStore::score(const State& state, std::span<const Token> tokens,
                       std::span<float> probabilities,
                       std::span<std::int32_t> matched_lengths) const {
  if (probabilities.size() != tokens.size() || matched_lengths.size() != tokens.size()) {
    throw std::invalid_argument("tokens, probabilities and matched_lengths differ in length");
  }
  std::fill(probabilities.begin(), probabilities.end(), 0.0F);
  std::fill(matched_lengths.begin(), matched_lengths.end(), 0);
  for (int length = order_ - 1; length >= 1; --length) {
    const NodeId node = state.nodes[length - 1];
    if (node == kNoNode) continue;
    const auto [begin, end] = child_range(length, node);
    const std::uint32_t context_count = levels_[length - 1].counts[node];
    if (context_count == 0) continue;
    const float reciprocal = 1.0F / static_cast<float>(context_count);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (matched_lengths[i] != 0) continue;
      const NodeId child = find_in_range(length + 1, begin, end, tokens[i]);
      if (child == kNoNode || levels_[length].counts[child] == 0) continue;
      probabilities[i] = probability(length + 1, child, reciprocal);
      matched_lengths[i] = length;
    }
  }
}

std::size_t NgramStore::match_children(int depth, NodeId context_node,
                                       std::span<const Token> sorted_tokens,
                                       std::span<Match> out) const {
  if (out.size() < sorted_tokens.size()) {
    throw std::invalid_argument("out is shorter than sorted_tokens");
  }
  const auto [begin, end] = child_range(depth, context_node);
  const std::uint32_t context_count = levels_[depth - 1].counts[context_node];
  if (context_count == 0) return 0;
  const float reciprocal = 1.0F / static_cast<float>(context_count);
  const Level& level = levels_[depth];
  std::size_t found = 0;
  // First who matches, without unpredictable branches; then what they are.
  if (end - begin <= kMergeRatio * sorted_tokens.size()) {
    std::size_t i = 0;
    NodeId child = begin;
    while (i < sorted_tokens.size() && child < end) {
      const Token wanted = sorted_tokens[i];
      const Token here = level.tokens[child];
      out[found].candidate = static_cast<std::uint32_t>(i);
      out[found].child = child;
      found += static_cast<std::size_t>(wanted == here);
      i += static_cast<std::size_t>(wanted <= here);
      child += static_cast<NodeId>(here <= wanted);
    }
  } else {
    // All binary searches take their steps together, so that their memory reads overlap.
    for (std::size_t i = 0; i < sorted_tokens.size(); ++i) out[i].child = begin;
    for (std::size_t length = end - begin; length > 1;) {
      const std::size_t half = length / 2;
      for (std::size_t i = 0; i < sorted_tokens.size(); ++i) {
        const NodeId first = out[i].child;
        const bool is_right = level.tokens[first + half - 1] < sorted_tokens[i];
        out[i].child = first + (static_cast<NodeId>(half) & (NodeId{0} - NodeId{is_right}));
      }
      length -= half;
    }
    for (std::size_t i = 0; i < sorted_tokens.size(); ++i) {
      const NodeId child = out[i].child;
      out[found].candidate = static_cast<std::uint32_t>(i);
      out[found].child = child;
      found += static_cast<std::size_t>(level.tokens[child] == sorted_tokens[i]);
    }
  }
  std::size_t kept = 0;
  for (std::size_t m = 0; m < found; ++m) {
    const Match match = out[m];
    if (level.counts[match.child] == 0) continue;
    out[kept++] = {match.candidate, match.child, probability(depth + 1, match.child, reciprocal)};
  }
  return kept;
}

std::int64_t NgramStore::count(std::span<const Token> ngram) const {
  if (ngram.empty()) return root_count_;
  if (ngram.size() > static_cast<std::size_t>(order_)) return 0;
  NodeId node = 0;
  for (std::size_t i = 0; i < ngram.size(); ++i) {
    node = find_child(static_cast<int>(i), node, ngram[i]);
    if (node == kNoNode) return 0;
  }
  return levels_[ngram.size() - 1].counts[node];
}

void NgramStore::verify() const {
  FileHeader header;
  std::memcpy(&header, file_.data(), sizeof(header));
  std::uint64_t vocab_size = 0;
  const auto check_section = [&](int depth, const char* name, std::uint64_t offset,
                                 std::uint64_t bytes, std::uint64_t expected) {
    const std::uint64_t found = checksum(file_.subspan(offset, (bytes + 7) / 8 * 8));
    if (found != expected) {
      corrupt(level_field(depth, name) + " checksum", number(found), number(expected));
    }
  };
  for (int depth = 1; depth <= order_; ++depth) {
    const Level& level = levels_[depth - 1];
    const LevelRecord& record = header.levels[depth - 1];
    const std::uint64_t nodes = level.node_count;
    check_section(depth, "tokens", record.tokens_offset, nodes * 4, record.tokens_checksum);
    check_section(depth, "counts", record.counts_offset, nodes * 4, record.counts_checksum);
    if (level.children != nullptr) {
      check_section(depth, "children", record.children_offset, (nodes + 1) * 4,
                    record.children_checksum);
    }
    // Runs of siblings: all of level 1, else one per node of the level above.
    const std::uint64_t runs = depth == 1 ? 1 : levels_[depth - 2].node_count;
    std::uint64_t reached = 0;
    for (std::uint64_t run = 0; run < runs; ++run) {
      std::pair<NodeId, NodeId> range{0, static_cast<NodeId>(nodes)};
      if (depth > 1) range = child_range(depth - 1, static_cast<NodeId>(run));
      if (range.first != reached) {
        corrupt(level_field(depth, "first child"), number(range.first), number(reached));
      }
      reached = range.second;
      Token previous = -1;
      for (NodeId child = range.first; child < range.second; ++child) {
        if (level.tokens[child] <= previous) {
          corrupt(level_field(depth, "token") + " of node " + number(child),
                  std::to_string(level.tokens[child]),
                  "more than " + std::to_string(previous) + ", its sibling before");
        }
        previous = level.tokens[child];
      }
      vocab_size = std::max(vocab_size, static_cast<std::uint64_t>(previous + std::int64_t{1}));
    }
    if (reached != nodes) {
      corrupt(level_field(depth, "nodes with a parent"), number(reached), number(nodes));
    }
  }
  if (vocab_size != vocab_size_) corrupt("vocab_size", number(vocab_size_), number(vocab_size));
}

}  // namespace dart
