#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "check.h"
#include "dart/errors.h"
#include "dart/ngram_builder.h"
#include "dart/ngram_encoder.h"
#include "dart/ngram_store.h"

using dart::FileHeader;
using dart::FormatError;
using dart::NgramStore;
using dart::State;
using dart::Token;
using dart::ValueCoding;

namespace {

std::vector<std::byte> make_image(int order, ValueCoding coding = ValueCoding::exact()) {
  dart::NgramBuilder builder(order);
  builder.add(std::vector<Token>{1, 2, 3, 1, 2, 4});
  builder.add(std::vector<Token>{2, 3});
  return dart::serialize_store(builder.build(), coding);
}

float probability(const NgramStore& store, const State& state, Token token) {
  float value = -1;
  std::int32_t matched = -1;
  store.score(state, {&token, 1}, {&value, 1}, {&matched, 1});
  const dart::Score alone = store.score(state, token);
  CHECK(alone.probability == value && alone.matched_length == matched);
  return value;
}

// What a search would find of each token, by the longest context.
std::vector<float> match_all(const NgramStore& store, const State& state,
                             const std::vector<Token>& sorted_tokens) {
  std::vector<float> values(sorted_tokens.size());
  std::vector<dart::Match> tokens;
  for (std::uint32_t i = 0; i < sorted_tokens.size(); ++i) {
    tokens.push_back(NgramStore::wanted(i, sorted_tokens[i]));
  }
  std::vector<dart::Match> shorter;
  for (int length = 0; length < store.order(); ++length) {
    std::vector<dart::Match> matches(sorted_tokens.size());
    matches.resize(store.match_children(state, length, tokens, shorter, matches));
    for (const dart::Match& match : matches) {
      CHECK(match.probability >= 0 && match.probability <= 1);
      if (match.probability > 0) values[match.candidate] = match.probability;
    }
    shorter.swap(matches);
  }
  return values;
}

// Looks at everything a search would, whatever the bytes are.
void use(const NgramStore& store) {
  const std::vector<Token> tokens{-1, 0, 1, 2, 3, 4, 1 << 30};
  const std::vector<Token> known(tokens.begin() + 1, tokens.end());
  std::vector<float> values(tokens.size());
  std::vector<std::int32_t> matched(tokens.size());
  State state = store.empty_state();
  for (const Token token : {1, 2, 3, 1, 2, 4, -1, 2}) {
    state = store.advance(state, token);
    store.score(state, tokens, values, matched);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      CHECK(values[i] >= 0 && values[i] <= 1);
      const dart::Score alone = store.score(state, tokens[i]);
      CHECK(alone.probability >= 0 && alone.probability <= 1);
    }
    (void)match_all(store, state, known);
    if (store.is_exact()) (void)store.count(known);
  }
}

// Prevents wrong back-off and a carried state that differs from a fresh walk.
void test_lookups() {
  const auto image = make_image(3);
  const auto store = NgramStore::view(image, "memory");
  store.verify();
  CHECK(store.order() == 3 && store.vocab_size() == 5 && store.root_count() == 8);
  CHECK(store.count(std::vector<Token>{2}) == 3);
  CHECK(store.count(std::vector<Token>{1, 2}) == 2);
  CHECK(store.count(std::vector<Token>{4, 1}) == 0);
  CHECK(store.count(std::vector<Token>{1, 2, 3, 1}) == 0);
  const State state = store.state_after(std::vector<Token>{3, 1, 2});
  CHECK(probability(store, state, 4) == 0.5F);
  CHECK(probability(store, state, 1) == 0.0F);
  const State carried = store.advance(store.advance(store.empty_state(), 1), 2);
  CHECK(carried.nodes == store.state_after(std::vector<Token>{9, 9, 1, 2}).nodes);
}

// Prevents the search's ways through short and long ranges, with few and many candidates, from
// disagreeing with single lookups.
void test_match_children_equals_count() {
  dart::NgramBuilder builder(3);
  for (Token token = 2; token < 3000; token += 3) builder.add(std::vector<Token>{1, token, 7});
  builder.add(std::vector<Token>{5, 1, 20, 1, 500, 1, 2000});
  const auto image = dart::serialize_store(builder.build(), ValueCoding::exact());
  const auto store = NgramStore::view(image, "memory");
  for (const std::vector<Token>& context : {std::vector<Token>{1}, {5, 1}, {20, 1}, {9}}) {
    const State state = store.state_after(context);
    for (const Token step : {1, 2, 97, 1500}) {
      std::vector<Token> tokens;
      for (Token token = 0; token < 3100; token += step) tokens.push_back(token);
      const std::vector<float> found = match_all(store, state, tokens);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        float expected = 0;
        for (auto first = context.begin(); first != context.end() && expected == 0; ++first) {
          std::vector<Token> ngram(first, context.end());
          const auto whole = static_cast<float>(store.count(ngram));
          ngram.push_back(tokens[i]);
          if (whole > 0) expected = static_cast<float>(store.count(ngram)) * (1.0F / whole);
        }
        CHECK(found[i] == expected);
      }
    }
  }
}

// Prevents a header field from being trusted: each is refused even when the header's checksum fits.
void test_header_fields() {
  const auto refuse = [](const char* part, const std::function<void(FileHeader&)>& change,
                         bool has_checksum = true) {
    auto image = make_image(3);
    FileHeader header;
    std::memcpy(&header, image.data(), sizeof(header));
    change(header);
    if (has_checksum) header.header_checksum = dart::header_checksum(header);
    std::memcpy(image.data(), &header, sizeof(header));
    CHECK_THROWS(NgramStore::view(image, "memory"), FormatError, part);
  };
  refuse("magic", [](FileHeader& h) { h.magic[0] = 'X'; });
  refuse("version", [](FileHeader& h) { h.version = 1; });
  refuse("endian mark", [](FileHeader& h) { h.endian_mark = 0x04030201U; });
  refuse("order", [](FileHeader& h) { h.order = 0; });
  refuse("order", [](FileHeader& h) { h.order = 9; });
  refuse("level 2 section", [](FileHeader& h) { h.order = 2; });
  refuse("level 3 section", [](FileHeader& h) { h.order = 4; });
  refuse("vocab_size", [](FileHeader& h) { h.vocab_size = ~0ULL; });
  refuse("file_bytes", [](FileHeader& h) { h.file_bytes += 8; });
  refuse("level 1 node count", [](FileHeader& h) { h.levels[0].node_count = ~0ULL; });
  refuse("level 1 token universe", [](FileHeader& h) { h.levels[0].node_count = 1U << 30; });
  refuse("level 1 token universe", [](FileHeader& h) { h.levels[0].token_universe = ~0ULL; });
  refuse("level 1 section", [](FileHeader& h) { h.levels[0].token_universe = 1ULL << 50; });
  refuse("level 1 remapping", [](FileHeader& h) { h.levels[0].is_remapped = 1; });
  refuse("level 2 remapping", [](FileHeader& h) { h.levels[1].is_remapped = 2; });
  refuse("level 2 codebook size", [](FileHeader& h) { h.levels[1].codebook_size = 0; });
  refuse("level 2 codebook size", [](FileHeader& h) { h.levels[1].codebook_size = ~0ULL; });
  refuse("level 3 section", [](FileHeader& h) { h.levels[1].codebook_size = 1U << 20; });
  refuse("kind of values", [](FileHeader& h) { h.value_kind = static_cast<dart::ValueKind>(2); });
  refuse("codebook size", [](FileHeader& h) { h.value_kind = dart::ValueKind::kQuantised; });
  refuse("level 2 section", [](FileHeader& h) { h.levels[1].tokens_offset = ~7ULL; });
  refuse("level 2 section", [](FileHeader& h) { h.levels[1].children_offset = 0; });
  refuse("level 8 section", [](FileHeader& h) { h.levels[7].reserved = 1; });
  refuse("header checksum", [](FileHeader& h) { h.root_count += 1; }, false);
}

// Prevents a damaged child range or code from being followed out of the file.
void test_damaged_indices() {
  FileHeader header;
  auto image = make_image(3);
  std::memcpy(&header, image.data(), sizeof(header));
  const std::uint64_t last_ones = 0xF000000000000000ULL;  // far more children than there are
  std::memcpy(image.data() + header.levels[0].children_offset, &last_ones, 8);
  auto store = NgramStore::view(image, "memory");
  CHECK_THROWS(store.state_after(std::vector<Token>{1, 2}), FormatError, "child range of node 0");
  CHECK_THROWS(store.verify(), FormatError, "level 1 children checksum");

  image = make_image(3);
  std::memcpy(&header, image.data(), sizeof(header));
  CHECK(header.levels[0].codebook_size == 3);  // two bits: a code of 3 is one too many
  std::memset(image.data() + header.levels[0].values_offset + 24, 0xFF, 8);
  store = NgramStore::view(image, "memory");
  CHECK_THROWS(store.count(std::vector<Token>{1}), FormatError, "level 1 code of node 0 is 3");
}

// Gives a changed file the checksum of its level's tokens, and the header's.
void sign_tokens(std::vector<std::byte>& image, int depth) {
  FileHeader header;
  std::memcpy(&header, image.data(), sizeof(header));
  dart::LevelRecord& level = header.levels[depth - 1];
  level.tokens_checksum = dart::checksum(
      std::span(image).subspan(level.tokens_offset, 8 * tokens_layout(header, depth).words));
  header.header_checksum = dart::header_checksum(header);
  std::memcpy(image.data(), &header, sizeof(header));
}

// Whether every code of level 2 or 3 is the place of a child of the suffix, by reading all.
bool has_right_codes(const std::vector<std::byte>& image, const NgramStore& store) {
  FileHeader header;
  std::memcpy(&header, image.data(), sizeof(header));
  const auto tokens = [&](int depth) {
    return dart::EliasFano(reinterpret_cast<const std::uint64_t*>(
                               image.data() + header.levels[depth - 1].tokens_offset),
                           tokens_layout(header, depth));
  };
  std::vector<std::uint64_t> suffixes;  // of the nodes of level 2
  std::uint64_t base = 0;
  for (dart::NodeId parent = 0; parent < store.num_nodes(1); ++parent) {
    const dart::NodeRange range = store.children(1, parent);
    for (dart::NodeId node = range.begin; node < range.end; ++node) {
      suffixes.push_back(tokens(2)[node] - base);
      if (suffixes.back() >= store.num_nodes(1)) return false;
    }
    if (range.begin < range.end) base = tokens(2)[range.end - 1] + 1;
  }
  base = 0;
  for (dart::NodeId parent = 0; parent < store.num_nodes(2); ++parent) {
    const dart::NodeRange range = store.children(2, parent);
    const dart::NodeRange suffix = store.children(1, suffixes[parent]);
    for (dart::NodeId node = range.begin; node < range.end; ++node) {
      if (tokens(3)[node] - base >= suffix.end - suffix.begin) return false;
    }
    if (range.begin < range.end) base = tokens(3)[range.end - 1] + 1;
  }
  return true;
}

// Prevents a remapped level from pointing at children that its suffix does not have: no checksum
// and no order of the codes shows that, and lookups would miss n-grams in silence.
void test_verify_reads_codes() {
  dart::NgramBuilder builder(3);
  for (int i = 1; i < 40; ++i) {
    builder.add(std::vector<Token>{70, 10 * i, 500, 10 * (i % 7), 70, 10 * (i % 5 + 30)});
  }
  const auto image = dart::serialize_store(builder.build(), ValueCoding::quantised(8));
  FileHeader header;
  std::memcpy(&header, image.data(), sizeof(header));
  CHECK(has_right_codes(image, NgramStore::view(image, "memory")));
  for (const int depth : {2, 3}) {
    CHECK(header.levels[depth - 1].is_remapped == 1);
    const dart::EliasFanoLayout layout = tokens_layout(header, depth);
    CHECK(layout.low_width > 0);
    int wrong = 0;
    for (std::uint64_t node = 0; node < layout.count; ++node) {
      auto damaged = image;  // the lowest bit of one code
      const std::uint64_t bit = node * static_cast<std::uint64_t>(layout.low_width);
      damaged[header.levels[depth - 1].tokens_offset + 8 * layout.low + bit / 8] ^=
          static_cast<std::byte>(1U << (bit % 8));
      sign_tokens(damaged, depth);
      const auto store = NgramStore::view(damaged, "memory");
      std::string said;
      try {
        store.verify();
      } catch (const FormatError& error) {
        said = error.what();
      }
      if (said.find("no ascending sequence") != std::string::npos) continue;
      CHECK(has_right_codes(damaged, store) == said.empty());
      if (said.empty()) continue;
      CHECK(said.find("children of its context's suffix") != std::string::npos);
      ++wrong;
    }
    CHECK(wrong > 0);
  }
}

// Prevents out-of-bounds reads for any single damaged byte or missing end (with sanitizers on).
void test_damage_everywhere(ValueCoding coding) {
  const auto image = make_image(3, coding);
  for (std::size_t i = 0; i < image.size(); ++i) {
    for (const int flip : {0x01, 0x10, 0x80, 0xFF}) {
      auto damaged = image;
      damaged[i] ^= static_cast<std::byte>(flip);
      try {
        const auto store = NgramStore::view(damaged, "memory");
        CHECK_THROWS(store.verify(), FormatError, "checksum");
        use(store);
      } catch (const FormatError&) {
      }
    }
    CHECK_THROWS(NgramStore::view(std::vector(image.begin(), image.begin() + i), "memory"),
                 FormatError, "expected");
  }
}

// Prevents a state of a larger store from indexing past the end of a smaller one.
void test_foreign_state() {
  const auto image = make_image(3);
  const auto store = NgramStore::view(image, "memory");
  State state = store.empty_state();
  state.nodes[0] = 1000;
  CHECK_THROWS(store.advance(state, 1), std::invalid_argument, "another");
}

// Prevents data races between readers (with the thread sanitizer on).
void test_concurrent_reads() {
  const auto image = make_image(4);
  const auto store = NgramStore::view(image, "memory");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&store] {
      for (int repeat = 0; repeat < 200; ++repeat) use(store);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main() {
  test_lookups();
  test_match_children_equals_count();
  test_header_fields();
  test_damaged_indices();
  test_verify_reads_codes();
  test_damage_everywhere(ValueCoding::exact());
  test_damage_everywhere(ValueCoding::quantised(2));
  test_foreign_state();
  test_concurrent_reads();
}
