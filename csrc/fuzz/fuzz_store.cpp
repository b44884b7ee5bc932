// Opens arbitrary bytes as a store, then looks up, searches and verifies.
//
// Input: one length byte, then the search's inputs in that many bytes, then the store. Checksums
// would stop the fuzzer at the door, so the header's is put right first, and with it the sections',
// so that verify() gets beyond them.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "dart/errors.h"
#include "dart/ngram_store.h"
#include "dart/tree_search.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void look_up(const dart::NgramStore& store, std::span<const dart::Token> tokens) {
  std::vector<float> values(tokens.size());
  std::vector<std::int32_t> matched(tokens.size());
  dart::State state = store.empty_state();
  for (const dart::Token token : tokens) {
    state = store.advance(state, token);
    store.score(state, tokens, values, matched);
    for (const float value : values) require(value >= 0 && value <= 1);
    for (const std::int32_t length : matched) require(length >= 0 && length < store.order());
    if (!store.is_exact()) continue;
    (void)store.count(tokens.first(std::min<std::size_t>(tokens.size(), 9)));
  }
}

void search(const dart::NgramStore* store, std::span<const dart::Token> tokens) {
  if (tokens.size() < 4) return;
  const std::size_t count = 3;
  const std::size_t levels = (tokens.size() - 1) / count;
  std::vector<float> probabilities;
  for (const dart::Token token : tokens.subspan(1, levels * count)) {
    probabilities.push_back(static_cast<float>(token & 7) / 7);
  }
  const std::vector<float> weights(levels, 0.5F);
  dart::SearchParams params;
  params.level_weights = weights;
  params.logit_weights = weights;
  params.tree_size = 1 + (tokens[0] & 31);
  params.beam_width = 1 + ((tokens[0] >> 5) & 7);
  params.eos_tokens = tokens.first(1);
  std::vector<float> acceptance;
  if ((tokens[0] & 1) != 0) {
    for (std::size_t i = 0; i < levels * 2 * 3; ++i) {
      acceptance.push_back(static_cast<float>((tokens[i % tokens.size()] & 15) - 8) / 4);
    }
    params.acceptance = acceptance;
    params.acceptance_lengths = 2;
    params.min_score = -static_cast<float>(tokens[1] & 31);
  }
  const dart::Tree tree = dart::search_tree(
      {tokens.subspan(1, levels * count), probabilities, levels, count}, store, tokens, params);
  require(tree.tokens.size() <= params.tree_size + 1);
  for (std::size_t i = 1; i < tree.tokens.size(); ++i) {
    require(tree.parents[i] >= 0 && static_cast<std::size_t>(tree.parents[i]) < i);
    require(tree.scores[i] <= tree.scores[tree.parents[i]]);
  }
}

// Gives every section that lies within the file, and the header, the checksum it should have.
void sign(dart::FileHeader& header, std::span<const std::byte> file) {
  const std::uint64_t order = std::min<std::uint64_t>(header.order, dart::kMaxOrder);
  for (std::uint64_t i = 0; i < order; ++i) {
    dart::LevelRecord& level = header.levels[i];
    const std::uint64_t next =
        i + 1 < order ? header.levels[i + 1].tokens_offset : header.file_bytes;
    const std::uint64_t after_tokens = i + 1 < order ? level.children_offset : level.values_offset;
    const auto sum = [file](std::uint64_t begin, std::uint64_t end) {
      if (begin > end || end > file.size() || (end - begin) % 8 != 0) return std::uint64_t{0};
      return dart::checksum(file.subspan(begin, end - begin));
    };
    level.tokens_checksum = sum(level.tokens_offset, after_tokens);
    if (i + 1 < order) level.children_checksum = sum(level.children_offset, level.values_offset);
    level.values_checksum = sum(level.values_offset, next);
  }
  header.header_checksum = dart::header_checksum(header);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1 || size < std::size_t{1} + data[0]) return 0;
  const std::span<const std::uint8_t> input(data + 1, data[0]);
  std::vector<dart::Token> tokens;
  // 254 and 255 stand for ids that occur nowhere, one of them negative.
  for (const std::uint8_t value : input) {
    tokens.push_back(value < 254 ? value : value == 254 ? -1 : 0x7FFFFFFF);
  }
  std::vector<std::uint64_t> aligned((size - 1 - data[0] + 7) / 8);
  const std::size_t bytes = size - 1 - data[0];
  if (bytes > 0) std::memcpy(aligned.data(), data + 1 + data[0], bytes);
  if (bytes >= sizeof(dart::FileHeader)) {
    dart::FileHeader header;
    std::memcpy(&header, aligned.data(), sizeof(header));
    sign(header, std::as_bytes(std::span<const std::uint64_t>(aligned)));
    std::memcpy(aligned.data(), &header, sizeof(header));
  }
  const auto image = std::as_bytes(std::span<const std::uint64_t>(aligned)).first(bytes);
  try {
    search(nullptr, tokens);
    const auto store = dart::NgramStore::view(image, "fuzz");
    const auto guarded = [](const auto& action) {
      try {
        action();
      } catch (const dart::FormatError&) {
      }
    };
    guarded([&] { look_up(store, tokens); });
    guarded([&] { search(&store, tokens); });
    guarded([&] { store.verify(); });
  } catch (const dart::FormatError&) {
  }
  return 0;
}
