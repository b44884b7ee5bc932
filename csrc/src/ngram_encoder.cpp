#include "dart/ngram_encoder.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "dart/bit_packed.h"
#include "dart/level_files.h"
#include "dart/quantiser.h"
#include "dart/temporary_file.h"

namespace dart {
namespace {

using Bytes = std::span<const std::byte>;

// Calls `visit` with the nodes begin .. end of each run of siblings that is not empty.
template <typename Visit>
void for_each_run(std::span<const NodeId> parents, const Visit& visit) {
  for (std::size_t parent = 0; parent + 1 < parents.size(); ++parent) {
    const NodeId begin = parents[parent];
    const NodeId end = parents[parent + 1];
    if (begin < end) visit(parent, begin, end);
  }
}

// What a level's tokens section has to count up to; `code` gives the code of a node.
template <typename Code>
std::uint64_t universe_of(std::span<const NodeId> parents, const Code& code) {
  std::uint64_t universe = 0;
  for_each_run(parents, [&](std::size_t, NodeId, NodeId end) {
    universe = std::min(universe + std::uint64_t{code(end - 1)} + 1, kMaxUniverse + 1);
  });
  return universe;
}

template <typename Code>
std::vector<std::uint64_t> encode_tokens(std::span<const NodeId> parents,
                                         const EliasFanoLayout& layout, const Code& code) {
  EliasFanoEncoder encoder(layout);
  std::uint64_t base = 0;
  for_each_run(parents, [&](std::size_t, NodeId begin, NodeId end) {
    for (NodeId node = begin; node < end; ++node) encoder.add(base + code(node));
    base += std::uint64_t{code(end - 1)} + 1;
  });
  return encoder.finish();
}

// The words of a values section; `code` gives a node's index into the codebook.
template <typename Value, typename Code>
std::vector<std::uint64_t> encode_values(const std::vector<Value>& codebook,
                                         const ValuesLayout& layout, std::uint64_t nodes,
                                         const Code& code) {
  std::vector<std::uint64_t> words(layout.words, 0);
  if (!codebook.empty()) {
    std::memcpy(words.data(), codebook.data(), codebook.size() * sizeof(Value));
  }
  const auto codes = std::span(words).subspan(layout.codebook_words);
  for (NodeId node = 0; node < nodes; ++node) pack(codes, layout.code_width, node, code(node));
  return words;
}

FileHeader encode(const StoreData& data, ValueCoding coding, StoreEncoder::Append append) {
  StoreEncoder encoder(static_cast<int>(data.levels.size()), data.root_count, coding,
                       std::move(append));
  for (const LevelData& level : data.levels) encoder.add_level(level);
  return encoder.finish();
}

}  // namespace

StoreEncoder::StoreEncoder(int order, std::int64_t root_count, ValueCoding coding, Append append)
    : coding_(coding), append_(std::move(append)) {
  if (order < 1 || order > kMaxOrder) throw std::invalid_argument("a store has 1 to 8 levels");
  if (coding.kind == ValueKind::kQuantised) (void)Quantiser(coding.bits);  // checks the bits
  std::copy(std::begin(kMagic), std::end(kMagic), header_.magic);
  header_.version = kFormatVersion;
  header_.endian_mark = kEndianMark;
  header_.order = static_cast<std::uint32_t>(order);
  header_.value_kind = coding.kind;
  header_.root_count = root_count;
  append_(std::vector<std::byte>(sizeof(FileHeader)));
}

void StoreEncoder::add_level(const LevelView& level) {
  check(level);
  ++depth_;
  LevelRecord& record = header_.levels[depth_ - 1];
  if (depth_ == 1) {
    record.node_count = level.tokens.size();
    root_children_[1] = record.node_count;
  }
  const bool is_last = depth_ == static_cast<int>(header_.order);
  if (!is_last) header_.levels[depth_].node_count = level.children.back();
  for (const Token token : level.tokens) {
    header_.vocab_size = std::max(header_.vocab_size, static_cast<std::uint64_t>(token) + 1);
  }
  append_tokens(level, depth_ == 1 ? std::vector<std::uint32_t>{} : remap(level));
  if (!is_last) append_children(level);
  if (coding_.kind == ValueKind::kExact) {
    append_counts(level);
  } else {
    append_probabilities(level);
  }
  two_before_ = before_;
  before_ = level;
}

FileHeader StoreEncoder::finish() {
  if (depth_ != static_cast<int>(header_.order)) throw std::logic_error("levels are missing");
  lay_out(header_);
  header_.header_checksum = header_checksum(header_);
  return header_;
}

void StoreEncoder::check(const LevelView& level) const {
  const auto require = [](bool condition, const char* problem) {
    if (!condition) throw std::invalid_argument(problem);
  };
  require(depth_ < static_cast<int>(header_.order), "there are more levels than the order");
  const std::size_t nodes = level.tokens.size();
  const bool is_last = depth_ + 1 == static_cast<int>(header_.order);
  require(nodes <= kMaxLevelNodes && level.counts.size() == nodes &&
              level.children.size() == (is_last ? 0 : nodes + 1) &&
              (depth_ == 0 || before_.children.back() == nodes),
          "level arrays do not fit each other");
  require(std::is_sorted(level.children.begin(), level.children.end()) &&
              (is_last || level.children.front() == 0),
          "children are not in the order of their parents");
  const NodeId whole[2] = {0, nodes};
  for_each_run(depth_ == 0 ? std::span<const NodeId>(whole) : before_.children,
               [&](std::size_t, NodeId begin, NodeId end) {
                 Token previous = -1;
                 for (NodeId node = begin; node < end; ++node) {
                   require(level.tokens[node] > previous, "siblings are not sorted by token");
                   previous = level.tokens[node];
                 }
               });
}

// The `children` array by which the nodes of the level at hand are grouped.
std::span<const NodeId> StoreEncoder::parents() const {
  return depth_ == 1 ? std::span<const NodeId>(root_children_) : before_.children;
}

// For each node the place of its token among the children of its context's suffix; empty where one
// has no such place. Notes where the suffixes of the nodes are, for the next level.
std::vector<std::uint32_t> StoreEncoder::remap(const LevelView& level) {
  // Contexts of one token have the root as their suffix.
  const std::span<const NodeId> starts =
      depth_ == 2 ? std::span<const NodeId>(root_children_) : two_before_.children;
  if (depth_ == 2) suffixes_.assign(before_.tokens.size(), 0);
  const bool is_last = depth_ == static_cast<int>(header_.order);
  std::vector<NodeId> next_suffixes(is_last ? 0 : level.tokens.size(), kNoNode);
  std::vector<std::uint32_t> codes(level.tokens.size());
  bool is_closed = true;
  for_each_run(before_.children, [&](std::size_t parent, NodeId begin, NodeId end) {
    const NodeId suffix = suffixes_[parent];
    if (suffix == kNoNode) {
      is_closed = false;
      return;
    }
    const auto first = before_.tokens.begin() + static_cast<std::ptrdiff_t>(starts[suffix]);
    const auto last = before_.tokens.begin() + static_cast<std::ptrdiff_t>(starts[suffix + 1]);
    auto at = first;
    for (NodeId node = begin; node < end; ++node) {
      at = std::lower_bound(at, last, level.tokens[node]);
      if (at == last || *at != level.tokens[node]) {
        is_closed = false;
        continue;
      }
      codes[node] = static_cast<std::uint32_t>(at - first);
      if (!is_last) next_suffixes[node] = static_cast<NodeId>(at - before_.tokens.begin());
    }
  });
  suffixes_.swap(next_suffixes);
  if (!is_closed) codes.clear();
  return codes;
}

void StoreEncoder::append_tokens(const LevelView& level,
                                 const std::vector<std::uint32_t>& remapped) {
  const auto plain_code = [&](NodeId node) {
    return static_cast<std::uint32_t>(level.tokens[node]);
  };
  const auto remapped_code = [&](NodeId node) { return remapped[node]; };
  LevelRecord& record = header_.levels[depth_ - 1];
  record.token_universe = universe_of(parents(), plain_code);
  if (!remapped.empty()) {
    const std::uint64_t universe = universe_of(parents(), remapped_code);
    record.is_remapped = universe < record.token_universe ? 1 : 0;
    if (record.is_remapped != 0) record.token_universe = universe;
  }
  if (record.token_universe > kMaxUniverse) {
    throw std::invalid_argument("there are too many n-grams of tokens with large numbers");
  }
  const EliasFanoLayout layout = tokens_layout(header_, depth_);
  record.tokens_checksum =
      append_words(record.is_remapped != 0 ? encode_tokens(parents(), layout, remapped_code)
                                           : encode_tokens(parents(), layout, plain_code));
}

void StoreEncoder::append_children(const LevelView& level) {
  EliasFanoEncoder encoder(children_layout(header_, depth_));
  for (const NodeId end : level.children.subspan(1)) encoder.add(end);
  header_.levels[depth_ - 1].children_checksum = append_words(encoder.finish());
}

void StoreEncoder::append_counts(const LevelView& level) {
  const std::unordered_set<Count> distinct(level.counts.begin(), level.counts.end());
  std::vector<Count> codebook(distinct.begin(), distinct.end());
  std::sort(codebook.begin(), codebook.end());
  if (codebook.size() > kMaxCodebook) throw std::invalid_argument("there are too many counts");
  LevelRecord& record = header_.levels[depth_ - 1];
  record.codebook_size = codebook.size();
  record.values_checksum = append_words(encode_values(
      codebook, values_layout(header_, depth_), level.counts.size(), [&](NodeId node) {
        const auto at = std::lower_bound(codebook.begin(), codebook.end(), level.counts[node]);
        return static_cast<std::uint64_t>(at - codebook.begin());
      }));
}

void StoreEncoder::append_probabilities(const LevelView& level) {
  LevelRecord& record = header_.levels[depth_ - 1];
  if (depth_ == 1) {  // no score uses what has no context
    record.values_checksum = append_words({});
    return;
  }
  const auto probability = [&](std::size_t parent, NodeId node) {
    const Count whole = before_.counts[parent];
    if (whole == 0) return 0.0F;
    return std::min(static_cast<float>(level.counts[node]) * (1.0F / static_cast<float>(whole)),
                    1.0F);
  };
  Quantiser quantiser(coding_.bits);
  for_each_run(parents(), [&](std::size_t parent, NodeId begin, NodeId end) {
    for (NodeId node = begin; node < end; ++node) {
      quantiser.add(probability(parent, node), level.counts[node]);
    }
  });
  const std::vector<float> codebook = quantiser.choose();
  record.codebook_size = codebook.size();
  std::size_t parent = 0;
  record.values_checksum = append_words(encode_values(
      codebook, values_layout(header_, depth_), level.counts.size(), [&](NodeId node) {
        while (before_.children[parent + 1] <= node) ++parent;
        return std::uint64_t{quantiser.code(probability(parent, node))};
      }));
}

std::uint64_t StoreEncoder::append_words(std::span<const std::uint64_t> words) {
  append_(std::as_bytes(words));
  return checksum(std::as_bytes(words));
}

void write_store(const StoreData& data, const std::string& path, ValueCoding coding) {
  TemporaryFile file(path);
  const FileHeader header = encode(data, coding, [&file](Bytes bytes) { file.append(bytes); });
  file.overwrite_start(std::as_bytes(std::span<const FileHeader>(&header, 1)));
  file.commit();
}

void write_store_from_levels(const std::string& prefix, int order, std::int64_t root_count,
                             const std::string& destination, ValueCoding coding,
                             const EncodeLimits& limits) {
  TemporaryFile file(destination);
  StoreEncoder encoder(order, root_count, coding, [&file](Bytes bytes) { file.append(bytes); });
  std::vector<LevelFiles> levels;
  for (int depth = 1; depth <= order; ++depth) {
    levels.emplace_back(prefix + std::to_string(depth), depth == order);
    const LevelView view = levels.back().view();
    if (limits.progress) limits.progress(depth, 0, view.tokens.size());
    encoder.add_level(view);
    for (const LevelFiles& level : levels) level.release();
  }
  const FileHeader header = encoder.finish();
  file.overwrite_start(std::as_bytes(std::span<const FileHeader>(&header, 1)));
  file.commit();
}

std::vector<std::byte> serialize_store(const StoreData& data, ValueCoding coding) {
  std::vector<std::byte> image;
  const FileHeader header = encode(data, coding, [&image](Bytes bytes) {
    image.insert(image.end(), bytes.begin(), bytes.end());
  });
  std::memcpy(image.data(), &header, sizeof(header));
  return image;
}

}  // namespace dart
