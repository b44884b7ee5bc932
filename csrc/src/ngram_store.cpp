#include "dart/ngram_store.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "dart/errors.h"
#include "dart/preload.h"

namespace dart {
namespace {

const char* const kRemedy = "build the file again with `python -m dart ngram build` or `import`";

// Children per wanted token up to which reading all children beats one jump per token (measured
// with 25 tokens).
constexpr std::uint64_t kReadRatio = 8;
// Children that are read at a time.
constexpr std::size_t kChunk = 64;
// Wanted tokens whose buckets are sought before the first is searched, so that the memory they lie
// in is waited for once.
constexpr std::size_t kBatch = 32;

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

// Among the values of children begin .. end - 1; on a damaged file the answer is wrong, not out of
// range.
std::size_t find_among(const EliasFano& sequence, NodeId begin, NodeId end,
                       std::span<const Match> wanted, Match* out) {
  // Children's values begin where those of the siblings before end.
  std::uint64_t base = 0;
  EliasFano::Cursor cursor = sequence.cursor(begin == 0 ? 0 : begin - 1);
  if (begin > 0) {
    base = cursor.value() + 1;
    cursor.next();
  }
  std::size_t found = 0;
  if (end - begin > kReadRatio * wanted.size()) {
    EliasFano::Finder finder = sequence.finder(cursor, end);
    std::array<EliasFano::Finder::Bucket, kBatch> buckets;
    for (std::size_t first = 0; first < wanted.size(); first += kBatch) {
      const std::size_t last = std::min(first + kBatch, wanted.size());
      for (std::size_t i = first; i < last; ++i) finder.prefetch_hint(base + wanted[i].position);
      for (std::size_t i = first; i < last; ++i) finder.prefetch_bits(base + wanted[i].position);
      for (std::size_t i = first; i < last; ++i)
        buckets[i - first] = finder.seek(base + wanted[i].position);
      for (std::size_t i = first; i < last; ++i) {
        const NodeId child = finder.find(buckets[i - first], base + wanted[i].position);
        if (child == EliasFano::kNotFound) continue;
        out[found++] = {wanted[i].candidate, static_cast<std::uint32_t>(child - begin), child,
                        0.0F};
      }
    }
    return found;
  }
  std::array<std::uint64_t, kChunk> values;
  std::size_t i = 0;
  for (NodeId first = begin; first < end && i < wanted.size();) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(end - first, kChunk));
    values[0] = cursor.value();
    for (std::size_t c = 1; c < count; ++c) {
      cursor.next();
      values[c] = cursor.value();
    }
    // Merges without branches that cannot be predicted.
    for (std::size_t c = 0; c < count && i < wanted.size();) {
      const std::uint64_t here = values[c] - base;
      const std::uint64_t there = wanted[i].position;
      const NodeId child = first + c;
      out[found] = {wanted[i].candidate, static_cast<std::uint32_t>(child - begin), child, 0.0F};
      found += static_cast<std::size_t>(here == there);
      i += static_cast<std::size_t>(there <= here);
      c += static_cast<std::size_t>(here <= there);
    }
    first += count;
    if (first < end) cursor.next();
  }
  return found;
}

}  // namespace

NgramStore NgramStore::open(const std::string& path, Residence residence) {
  const auto mapping = std::make_shared<const MappedFile>(
      path, "an n-gram store file",
      "give the path of a file made by `python -m dart ngram build` or `import`");
  if (residence == Residence::kMapped) mapping->expect_scattered_reads(0);
  NgramStore store(mapping->bytes(), path);
  store.mapping_ = mapping;
  if (residence == Residence::kLocked) mapping->lock(path);
  if (residence != Residence::kMapped) {
    preload(mapping, residence == Residence::kLocked ? mapping->bytes().size() : preload_limit());
  }
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
  const FileHeader head = header();
  check_header(head);

  order_ = static_cast<int>(head.order);
  is_exact_ = head.value_kind == ValueKind::kExact;
  vocab_size_ = head.vocab_size;
  root_count_ = head.root_count;
  for (int depth = 1; depth <= order_; ++depth) {
    const LevelRecord& record = head.levels[depth - 1];
    Level& level = levels_[depth - 1];
    level.node_count = record.node_count;
    level.is_remapped = record.is_remapped != 0;
    level.tokens = EliasFano(words_at(record.tokens_offset), tokens_layout(head, depth));
    if (depth < order_) {
      level.children = EliasFano(words_at(record.children_offset), children_layout(head, depth));
    }
    const ValuesLayout values = values_layout(head, depth);
    const std::uint64_t* const codebook = words_at(record.values_offset);
    if (is_exact_) {
      level.counts = codebook;
    } else {
      level.probabilities = reinterpret_cast<const float*>(codebook);
    }
    level.codebook_size = record.codebook_size;
    level.codes = BitPacked(codebook + values.codebook_words, values.code_width);
  }
}

FileHeader NgramStore::header() const {
  FileHeader header;
  std::memcpy(&header, file_.data(), sizeof(header));
  return header;
}

const std::uint64_t* NgramStore::words_at(std::uint64_t offset) const {
  return reinterpret_cast<const std::uint64_t*>(file_.data() + offset);
}

void NgramStore::check_header(const FileHeader& header) const {
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
  const auto kind = static_cast<std::uint32_t>(header.value_kind);
  if (kind > static_cast<std::uint32_t>(ValueKind::kQuantised)) {
    corrupt("kind of values", number(kind), "0 (exact) or 1 (quantised)");
  }
  if (header.vocab_size > 0x80000000ULL) {
    corrupt("vocab_size", number(header.vocab_size), "at most 2^31");
  }
  FileHeader expected = header;
  for (int depth = 1; depth <= kMaxOrder; ++depth) {
    LevelRecord& level = expected.levels[depth - 1];
    if (depth > static_cast<int>(header.order)) {
      level = LevelRecord{};
      continue;
    }
    const auto limit = [&](const char* what, std::uint64_t value, std::uint64_t least,
                           std::uint64_t most) {
      if (value < least || value > most) {
        corrupt(level_field(depth, what), number(value), number(least) + ".." + number(most));
      }
    };
    const bool has_nodes = level.node_count > 0;
    const bool has_values = has_nodes && (depth > 1 || header.value_kind == ValueKind::kExact);
    limit("node count", level.node_count, 0, kMaxLevelNodes);
    limit("token universe", level.token_universe, level.node_count, has_nodes ? kMaxUniverse : 0);
    limit("codebook size", level.codebook_size, has_values ? 1 : 0, has_values ? kMaxCodebook : 0);
    limit("remapping", level.is_remapped, 0, depth > 1 ? 1 : 0);
    limit("reserved field", level.reserved, 0, 0);
  }
  lay_out(expected);
  for (int depth = 1; depth <= kMaxOrder; ++depth) {
    const std::size_t i = static_cast<std::size_t>(depth) - 1;
    if (std::memcmp(&expected.levels[i], &header.levels[i], sizeof(LevelRecord)) != 0) {
      corrupt(level_field(depth, "section offset"), "inconsistent",
              "the offset that follows from the sizes");
    }
  }
  if (header.file_bytes != expected.file_bytes) {
    corrupt("file_bytes", number(header.file_bytes), number(expected.file_bytes));
  }
  if (header.file_bytes != file_.size()) {
    corrupt("file size", number(file_.size()) + " bytes", number(header.file_bytes) + " bytes");
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

std::vector<LevelSizes> NgramStore::level_sizes() const {
  const FileHeader head = header();
  std::vector<LevelSizes> sizes;
  for (int depth = 1; depth <= order_; ++depth) {
    const ValuesLayout values = values_layout(head, depth);
    sizes.push_back({.nodes = num_nodes(depth),
                     .tokens = 8 * tokens_layout(head, depth).words,
                     .children = depth < order_ ? 8 * children_layout(head, depth).words : 0,
                     .values = 8 * values.words,
                     .value_bits = values.code_width,
                     .is_remapped = levels_[depth - 1].is_remapped});
  }
  return sizes;
}

NodeRange NgramStore::children(int length, NodeId node) const {
  if (length == 0) return {0, levels_[0].node_count};
  const Level& level = levels_[length - 1];
  if (node >= level.node_count) {
    throw std::invalid_argument("the state belongs to another n-gram store");
  }
  EliasFano::Cursor cursor = level.children.cursor(node == 0 ? 0 : node - 1);
  NodeId begin = 0;
  if (node > 0) {
    begin = cursor.value();
    cursor.next();
  }
  const NodeId end = cursor.value();
  if (begin > end || end > levels_[length].node_count) {
    corrupt(level_field(length, "child range") + " of node " + number(node),
            number(begin) + ".." + number(end),
            "a rising range within 0.." + number(levels_[length].node_count));
  }
  return {begin, end};
}

std::uint64_t NgramStore::code_of(int depth, NodeId node) const {
  const Level& level = levels_[depth - 1];
  const std::uint64_t code = level.codes[node];
  if (code >= level.codebook_size) {
    corrupt(level_field(depth, "code") + " of node " + number(node), number(code),
            "less than " + number(level.codebook_size));
  }
  return code;
}

Count NgramStore::count_of(int depth, NodeId node) const {
  return levels_[depth - 1].counts[code_of(depth, node)];
}

State NgramStore::empty_state() const {
  State state;
  state.nodes.fill(kNoNode);
  return state;
}

std::array<NodeId, kMaxOrder> NgramStore::ends_in(const State& state, Token token) const {
  std::array<NodeId, kMaxOrder> nodes;
  nodes.fill(kNoNode);
  if (token < 0) return nodes;
  std::uint32_t position = 0;  // among the children of the context one token shorter
  for (int length = 0; length < order_; ++length) {
    const NodeId context = length == 0 ? 0 : state.nodes[length - 1];
    const Level& level = levels_[length];
    const bool is_possible =
        context != kNoNode && (!level.is_remapped || nodes[length - 1] != kNoNode);
    if (!is_possible) continue;
    Match wanted = NgramStore::wanted(0, token);
    if (level.is_remapped) wanted.position = position;
    Match match;
    if (find_children(length, children(length, context), {&wanted, 1}, {&match, 1}) > 0) {
      nodes[length] = match.child;
      position = match.position;
    }
  }
  return nodes;
}

State NgramStore::advance(const State& state, Token token) const {
  State next;
  const auto nodes = ends_in(state, token);
  std::copy_n(nodes.begin(), next.nodes.size(), next.nodes.begin());
  // The longest n-grams have no children and are no context.
  if (order_ <= static_cast<int>(next.nodes.size())) next.nodes[order_ - 1] = kNoNode;
  return next;
}

State NgramStore::state_after(std::span<const Token> context) const {
  const std::size_t useful = std::min(context.size(), static_cast<std::size_t>(order_ - 1));
  State state = empty_state();
  for (const Token token : context.last(useful)) state = advance(state, token);
  return state;
}

std::size_t NgramStore::find_children(int length, NodeRange range, std::span<const Match> wanted,
                                      std::span<Match> out) const {
  if (out.size() < wanted.size()) throw std::invalid_argument("out is shorter than wanted");
  if (range.begin == range.end || wanted.empty()) return 0;
  const Level& level = levels_[length];
  const std::size_t found = find_among(level.tokens, range.begin, range.end, wanted, out.data());
  if (length > 0) {
    for (const Match& match : out.first(found)) level.codes.prefetch(match.child);
  }
  return found;
}

void NgramStore::read_probabilities(int length, NodeId context, std::span<Match> matches) const {
  if (length == 0 || matches.empty()) return;
  const Level& level = levels_[length];
  if (is_exact_) {
    const Count whole = count_of(length, context);
    const float reciprocal = whole == 0 ? 0.0F : 1.0F / static_cast<float>(whole);
    for (Match& match : matches) {
      const Count part = count_of(length + 1, match.child);
      match.probability = std::min(static_cast<float>(part) * reciprocal, 1.0F);
    }
    return;
  }
  for (Match& match : matches) {
    const float probability = level.probabilities[code_of(length + 1, match.child)];
    // Written so that a damaged codebook's NaN becomes 0.
    match.probability = probability > 0.0F ? std::min(probability, 1.0F) : 0.0F;
  }
}

std::size_t NgramStore::match_children(const State& state, int length,
                                       std::span<const Match> tokens,
                                       std::span<const Match> shorter, std::span<Match> out) const {
  const NodeId context = length == 0 ? 0 : state.nodes[length - 1];
  const std::span<const Match> wanted = is_remapped(length) ? shorter : tokens;
  if (context == kNoNode || wanted.empty()) return 0;
  const std::size_t found = find_children(length, children(length, context), wanted, out);
  read_probabilities(length, context, out.first(found));
  return found;
}

Score NgramStore::score(const State& state, Token token) const {
  Score score{0.0F, 0};
  if (token < 0) return score;
  const Match wanted = NgramStore::wanted(0, token);
  Match match{};
  std::size_t found = 0;
  for (int length = 0; length < order_; ++length) {
    const Match shorter = match;
    found = match_children(state, length, {&wanted, 1}, {&shorter, found}, {&match, 1});
    if (found > 0 && match.probability > 0.0F) score = {match.probability, length};
  }
  return score;
}

void NgramStore::score(const State& state, std::span<const Token> tokens,
                       std::span<float> probabilities,
                       std::span<std::int32_t> matched_lengths) const {
  if (probabilities.size() != tokens.size() || matched_lengths.size() != tokens.size()) {
    throw std::invalid_argument("tokens, probabilities and matched_lengths differ in length");
  }
  std::vector<Token> sorted(tokens.begin(), tokens.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  sorted.erase(sorted.begin(), std::lower_bound(sorted.begin(), sorted.end(), Token{0}));
  std::vector<Match> all;
  for (const Token token : sorted)
    all.push_back(wanted(static_cast<std::uint32_t>(all.size()), token));
  std::vector<Match> shorter(sorted.size());
  std::vector<Match> matches(sorted.size());
  std::vector<Score> scores(sorted.size(), Score{0.0F, 0});
  std::size_t found = 0;
  for (int length = 0; length < order_; ++length) {
    shorter.swap(matches);
    found = match_children(state, length, all, std::span(shorter).first(found), matches);
    for (const Match& match : std::span(matches).first(found)) {
      if (match.probability > 0.0F) scores[match.candidate] = {match.probability, length};
    }
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), tokens[i]);
    const bool is_known = at != sorted.end() && *at == tokens[i];  // negative ones are not
    const Score score =
        is_known ? scores[static_cast<std::size_t>(at - sorted.begin())] : Score{0.0F, 0};
    probabilities[i] = score.probability;
    matched_lengths[i] = score.matched_length;
  }
}

std::int64_t NgramStore::count(std::span<const Token> ngram) const {
  if (ngram.empty()) return root_count_;
  if (!is_exact_) {
    throw std::invalid_argument(path_ +
                                " holds rounded probabilities, expected counts; build or import "
                                "it with exact values to count n-grams");
  }
  if (ngram.size() > static_cast<std::size_t>(order_)) return 0;
  const State state = state_after(ngram.first(ngram.size() - 1));
  const NodeId node = ends_in(state, ngram.back())[ngram.size() - 1];
  if (node == kNoNode) return 0;
  return static_cast<std::int64_t>(count_of(static_cast<int>(ngram.size()), node));
}

}  // namespace dart
