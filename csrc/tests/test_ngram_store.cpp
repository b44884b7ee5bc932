#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "check.h"
#include "dart/errors.h"
#include "dart/ngram_builder.h"
#include "dart/ngram_store.h"

using dart::FileHeader;
using dart::FormatError;
using dart::NgramStore;
using dart::State;
using dart::Token;

namespace {

std::vector<std::byte> make_image(int order) {
  dart::NgramBuilder builder(order);
  builder.add(std::vector<Token>{1, 2, 3, 1, 2, 4});
  builder.add(std::vector<Token>{2, 3});
  return dart::serialize_store(builder.build());
}

float probability(const NgramStore& store, const State& state, Token token) {
  float value = -1;
  std::int32_t matched = -1;
  store.score(state, {&token, 1}, {&value, 1}, {&matched, 1});
  return value;
}

// Looks at everything a search would, whatever the bytes are.
void use(const NgramStore& store) {
  const std::vector<Token> tokens{-1, 0, 1, 2, 3, 4, 1 << 30};
  std::vector<float> values(tokens.size());
  std::vector<std::int32_t> matched(tokens.size());
  std::vector<dart::Match> matches(tokens.size());
  State state = store.empty_state();
  for (const Token token : {1, 2, 3, 1, 2, 4, -1, 2}) {
    state = store.advance(state, token);
    store.score(state, tokens, values, matched);
    for (const float value : values) CHECK(value >= 0 && value <= 1);
    for (int length = 1; length < store.order(); ++length) {
      if (state.nodes[length - 1] == dart::kNoNode) continue;
      CHECK(store.match_children(length, state.nodes[length - 1], tokens, matches) <= 7);
    }
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

// Prevents the search's merge from disagreeing with single lookups, for short and long ranges.
void test_match_children_equals_score() {
  dart::NgramBuilder builder(2);
  for (Token token = 2; token < 300; token += 3) builder.add(std::vector<Token>{1, token});
  const auto image = dart::serialize_store(builder.build());
  const auto store = NgramStore::view(image, "memory");
  const State state = store.state_after(std::vector<Token>{1});
  for (const Token step : {1, 2, 97}) {
    std::vector<Token> tokens;
    for (Token token = 0; token < 310; token += step) tokens.push_back(token);
    std::vector<float> expected(tokens.size());
    std::vector<std::int32_t> matched(tokens.size());
    store.score(state, tokens, expected, matched);
    std::vector<float> found(tokens.size());
    std::vector<dart::Match> matches(tokens.size());
    const std::size_t count = store.match_children(1, state.nodes[0], tokens, matches);
    for (std::size_t i = 0; i < count; ++i) {
      found[matches[i].candidate] = matches[i].probability;
    }
    CHECK(found == expected);
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
  refuse("version", [](FileHeader& h) { h.version = 2; });
  refuse("endian mark", [](FileHeader& h) { h.endian_mark = 0x04030201U; });
  refuse("order", [](FileHeader& h) { h.order = 0; });
  refuse("order", [](FileHeader& h) { h.order = 9; });
  refuse("level 3", [](FileHeader& h) { h.order = 2; });
  refuse("level 3", [](FileHeader& h) { h.order = 4; });
  refuse("vocab_size", [](FileHeader& h) { h.vocab_size = ~0ULL; });
  refuse("file_bytes", [](FileHeader& h) { h.file_bytes += 8; });
  refuse("level 1 node count", [](FileHeader& h) { h.levels[0].node_count = ~0ULL; });
  refuse("level 1 section", [](FileHeader& h) { h.levels[0].node_count = 0xFFFFFFFEU; });
  refuse("level 2 section", [](FileHeader& h) { h.levels[1].tokens_offset = ~7ULL; });
  refuse("level 2 section", [](FileHeader& h) { h.levels[1].children_offset = 0; });
  refuse("level 8 section", [](FileHeader& h) { h.levels[7].reserved = 1; });
  refuse("header checksum", [](FileHeader& h) { h.root_count += 1; }, false);
}

// Prevents a damaged child range from being followed out of the file.
void test_damaged_child_range() {
  auto image = make_image(3);
  FileHeader header;
  std::memcpy(&header, image.data(), sizeof(header));
  const std::uint32_t huge = 0x7FFFFFFFU;
  std::memcpy(image.data() + header.levels[0].children_offset + 4, &huge, 4);
  const auto store = NgramStore::view(image, "memory");
  CHECK_THROWS(store.state_after(std::vector<Token>{1, 2}), FormatError, "child range of node 0");
  CHECK_THROWS(store.verify(), FormatError, "level 1 children checksum");
}

// Prevents out-of-bounds reads for any single damaged byte or missing end (with sanitizers on).
void test_damage_everywhere() {
  const auto image = make_image(3);
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
  test_match_children_equals_score();
  test_header_fields();
  test_damaged_child_range();
  test_damage_everywhere();
  test_foreign_state();
  test_concurrent_reads();
}
