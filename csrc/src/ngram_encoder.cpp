#include "dart/ngram_encoder.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "dart/quantiser.h"

namespace dart {
namespace {

// Of the memory, what is not the remapper's: a quantiser, windows of readers and writers.
constexpr std::size_t kOtherMemory = std::size_t{32} << 20;

void require(bool condition, const char* problem) {
  if (!condition) throw std::invalid_argument(problem);
}

// The values of a tokens section. `Code` is of tokens or of remapped ones.
template <typename Code>
void write_tokens(const Column<NodeId>& parents, const Column<Code>& column,
                  EliasFanoEncoder& encoder, Pulse& pulse) {
  ColumnReader<Code> codes(column);
  std::uint64_t base = 0;
  for_each_run(parents, [&](std::uint64_t, NodeId begin, NodeId end) {
    pulse.at(begin);
    std::uint64_t value = 0;
    for (NodeId node = begin; node < end; ++node) {
      value = base + static_cast<std::uint64_t>(codes[node]);
      encoder.add(value);
    }
    base = value + 1;
  });
  encoder.finish();
}

void write_children(const Column<NodeId>& column, EliasFanoEncoder& encoder, Pulse& pulse) {
  ColumnReader<NodeId> children(column);
  for (NodeId node = 0; node + 1 < children.size(); ++node) {
    pulse.at(node);
    encoder.add(children[node + 1]);
  }
  encoder.finish();
}

}  // namespace

StoreEncoder::StoreEncoder(int order, std::int64_t root_count, ValueCoding coding,
                           WritableBytes& bytes, std::string scratch, EncodeLimits limits)
    : coding_(coding), bytes_(bytes), scratch_(std::move(scratch)), limits_(std::move(limits)) {
  if (order < 1 || order > kMaxOrder) throw std::invalid_argument("a store has 1 to 8 levels");
  if (coding.kind == ValueKind::kQuantised) (void)Quantiser(coding.bits);  // checks the bits
  std::copy(std::begin(kMagic), std::end(kMagic), header_.magic);
  header_.version = kFormatVersion;
  header_.endian_mark = kEndianMark;
  header_.order = static_cast<std::uint32_t>(order);
  header_.value_kind = coding.kind;
  header_.root_count = root_count;
  header_.file_bytes = sizeof(FileHeader);
}

void StoreEncoder::restore(const State& state, const LevelColumns& two_before,
                           const LevelColumns& before) {
  header_ = state.header;
  depth_ = state.depth;
  two_before_ = two_before;
  before_ = before;
  root_children_[1] = header_.levels[0].node_count;
  if (depth_ > 1 && !is_last()) suffixes_ = Column<NodeId>(suffixes_path());
}

void StoreEncoder::add_level(const LevelColumns& level) {
  check_sizes(level);
  ++depth_;
  const std::uint64_t nodes = level.tokens.size();
  if (depth_ == 1) root_children_[1] = nodes;
  record().node_count = nodes;
  LevelPulse progress(limits_.progress, static_cast<int>(depth_), nodes,
                      2 + (depth_ > 1 ? 1 : 0) + (is_last() ? 0 : 2));

  std::optional<Remapper> remapped;
  const std::unique_ptr<ValuesEncoder> values = values_of(level);
  run_both(
      progress, nodes,
      [&](LevelPulse& pulse) {
        if (!is_last()) {
          check_children(level, pulse);
          pulse.end_pass();
        }
        check_tokens(level, pulse);
        pulse.end_pass();
        if (depth_ == 1) return;
        remapped.emplace(remap(level, pulse));
        pulse.end_pass();
      },
      [&](Pulse& pulse) { record().codebook_size = values->choose(pulse); });

  if (remapped && remapped->is_closed() && remapped->universe() < record().token_universe) {
    record().is_remapped = 1;
    record().token_universe = remapped->universe();
  }
  require(record().token_universe <= kMaxUniverse,
          "there are too many n-grams of tokens with large numbers");
  write_sections(level, remapped ? remapped->codes() : Column<std::uint32_t>(), *values, progress);

  if (remapped) suffix_scratch_ = std::move(remapped->suffixes());
  suffixes_ = suffix_scratch_.column();
  two_before_ = before_;
  before_ = level;
}

void StoreEncoder::write_sections(const LevelColumns& level, const Column<std::uint32_t>& codes,
                                  ValuesEncoder& values, LevelPulse& progress) {
  const auto depth = static_cast<int>(depth_);
  const EliasFanoLayout tokens = tokens_layout(header_, depth);
  const EliasFanoLayout children = is_last() ? EliasFanoLayout() : children_layout(header_, depth);
  const ValuesLayout values_words = values_layout(header_, depth);
  const std::uint64_t tokens_at = header_.file_bytes;
  const std::uint64_t children_at = tokens_at + 8 * tokens.words;
  const std::uint64_t values_at = children_at + 8 * children.words;
  bytes_.resize(tokens_at);  // what is gained anew are zeros
  header_.file_bytes = values_at + 8 * values_words.words;
  bytes_.resize(header_.file_bytes);
  run_both(
      progress, level.tokens.size(),
      [&](LevelPulse& pulse) {
        EliasFanoEncoder encoder(tokens, bytes_, tokens_at);
        if (record().is_remapped != 0) {
          write_tokens(parents(), codes, encoder, pulse);
        } else {
          write_tokens(parents(), level.tokens, encoder, pulse);
        }
        record().tokens_checksum = checksum_at(tokens_at, tokens.words, pulse);
        pulse.end_pass();
        if (is_last()) return;
        EliasFanoEncoder ends(children, bytes_, children_at);
        write_children(level.children, ends, pulse);
        record().children_checksum = checksum_at(children_at, children.words, pulse);
        pulse.end_pass();
      },
      [&](Pulse& pulse) {
        values.write(bytes_, values_at, values_words, pulse);
        record().values_checksum = checksum_at(values_at, values_words.words, pulse);
      });
}

void StoreEncoder::finish() {
  if (!is_last()) throw std::logic_error("levels are missing");
  lay_out(header_);
  header_.header_checksum = header_checksum(header_);
  bytes_.write_at(0, std::as_bytes(std::span<const FileHeader>(&header_, 1)));
}

// The `children` array by which the nodes of the level at hand are grouped.
Column<NodeId> StoreEncoder::parents() const {
  return depth_ == 1 ? Column<NodeId>(std::span<const NodeId>(root_children_)) : before_.children;
}

std::string StoreEncoder::suffixes_path() const {
  return scratch(depth_ % 2 == 0 ? "suffixes-0" : "suffixes-1");
}

std::unique_ptr<ValuesEncoder> StoreEncoder::values_of(const LevelColumns& level) const {
  if (coding_.kind == ValueKind::kExact) return exact_values(level.counts);
  if (depth_ == 1) return no_values();  // no score uses what has no context
  return quantised_values(coding_.bits, level.counts, before_.counts, before_.children);
}

void StoreEncoder::check_sizes(const LevelColumns& level) const {
  require(!is_last(), "there are more levels than the order");
  const std::uint64_t nodes = level.tokens.size();
  const bool has_children = depth_ + 1 < header_.order;
  require(nodes <= kMaxLevelNodes && level.counts.size() == nodes &&
              level.children.size() == (has_children ? nodes + 1 : 0) &&
              (depth_ == 0 || header_.levels[depth_].node_count == nodes),
          "level arrays do not fit each other");
}

// Notes how many nodes come next.
void StoreEncoder::check_children(const LevelColumns& level, Pulse& pulse) {
  const char* const problem = "children are not in the order of their parents";
  ColumnReader<NodeId> children(level.children);
  require(children[0] == 0, problem);
  NodeId previous = 0;
  for (NodeId node = 0; node < children.size(); ++node) {
    pulse.at(node);
    const NodeId end = children[node];
    require(end >= previous, problem);
    previous = end;
  }
  header_.levels[depth_].node_count = previous;
}

// Notes what the tokens count up to.
void StoreEncoder::check_tokens(const LevelColumns& level, Pulse& pulse) {
  ColumnReader<Token> tokens(level.tokens);
  Token largest = -1;
  std::uint64_t universe = 0;
  for_each_run(parents(), [&](std::uint64_t, NodeId begin, NodeId end) {
    pulse.at(begin);
    Token previous = -1;
    for (NodeId node = begin; node < end; ++node) {
      const Token token = tokens[node];
      require(token > previous, "siblings are not sorted by token");
      previous = token;
    }
    largest = std::max(largest, previous);
    universe = std::min(universe + static_cast<std::uint64_t>(previous) + 1, kMaxUniverse + 1);
  });
  header_.vocab_size = std::max(header_.vocab_size, static_cast<std::uint64_t>(largest) + 1);
  record().token_universe = universe;
}

Remapper StoreEncoder::remap(const LevelColumns& level, Pulse& pulse) const {
  // Contexts of one token have the root as their suffix.
  const bool is_of_root = depth_ == 2;
  const Column<NodeId> starts =
      is_of_root ? Column<NodeId>(std::span<const NodeId>(root_children_)) : two_before_.children;
  const std::size_t memory = limits_.memory_bytes - std::min(limits_.memory_bytes, kOtherMemory);
  Remapper remapper(starts, before_.tokens, memory, level.tokens.size(), scratch("codes"),
                    suffixes_path(), !is_last());
  ColumnReader<Token> tokens(level.tokens);
  ColumnReader<NodeId> suffixes(suffixes_);
  for_each_run(before_.children, [&](std::uint64_t parent, NodeId begin, NodeId end) {
    pulse.at(begin);
    remapper.add(is_of_root ? 0 : suffixes[parent], tokens, begin, end);
  });
  remapper.finish();
  return remapper;
}

std::uint64_t StoreEncoder::checksum_at(std::uint64_t offset, std::uint64_t words,
                                        Pulse& pulse) const {
  constexpr std::uint64_t kBlock = std::uint64_t{1} << 18;
  Checksum sum(8 * words);
  std::vector<std::byte> block;
  for (const std::uint64_t end = offset + 8 * words; offset < end; offset += block.size()) {
    pulse.wait();
    block.resize(static_cast<std::size_t>(std::min(kBlock, end - offset)));
    bytes_.read_at(offset, block);
    sum.add(block);
  }
  return sum.value();
}

}  // namespace dart
