#include "dart/ngram_format.h"

#include <cstring>

namespace dart {

void Checksum::add(std::span<const std::byte> bytes) {
  std::uint64_t state = state_;
  for (std::size_t at = 0; at < bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    state = (state ^ word) * 0x9E3779B97F4A7C15ULL;
    state ^= state >> 29;
  }
  state_ = state;
}

std::uint64_t checksum(std::span<const std::byte> bytes) {
  Checksum sum(bytes.size());
  sum.add(bytes);
  return sum.value();
}

std::uint64_t header_checksum(FileHeader header) {
  header.header_checksum = 0;
  return checksum(std::as_bytes(std::span<const FileHeader>(&header, 1)));
}

EliasFanoLayout tokens_layout(const FileHeader& header, int depth) {
  const LevelRecord& level = header.levels[depth - 1];
  return {level.node_count, level.token_universe, true};
}

EliasFanoLayout children_layout(const FileHeader& header, int depth) {
  const std::uint64_t nodes = header.levels[depth - 1].node_count;
  return {nodes, nodes == 0 ? 0 : header.levels[depth].node_count + 1, false};
}

ValuesLayout values_layout(const FileHeader& header, int depth) {
  const LevelRecord& level = header.levels[depth - 1];
  const std::uint64_t entry =
      header.value_kind == ValueKind::kExact ? sizeof(Count) : sizeof(float);
  ValuesLayout layout;
  layout.codebook_words = (level.codebook_size * entry + 7) / 8;
  layout.code_width = bits_for(level.codebook_size);
  layout.words = layout.codebook_words + packed_words(level.node_count, layout.code_width);
  return layout;
}

void lay_out(FileHeader& header) {
  std::uint64_t at = sizeof(FileHeader);
  const auto place = [&at](std::uint64_t& offset, std::uint64_t words) {
    offset = at;
    at += 8 * words;
  };
  const auto order = static_cast<int>(header.order);
  for (int depth = 1; depth <= order; ++depth) {
    LevelRecord& level = header.levels[depth - 1];
    place(level.tokens_offset, tokens_layout(header, depth).words);
    level.children_offset = 0;
    if (depth < order) place(level.children_offset, children_layout(header, depth).words);
    place(level.values_offset, values_layout(header, depth).words);
  }
  header.file_bytes = at;
}

}  // namespace dart
