#include <algorithm>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "dart/errors.h"
#include "dart/ngram_builder.h"
#include "dart/ngram_encoder.h"
#include "dart/ngram_store.h"

using dart::NgramBuilder;
using dart::NgramStore;
using dart::Token;
using dart::ValueCoding;

namespace {

// Prevents wrong counts, above all at the ends of sequences, and n-grams across two sequences.
void test_counts_equal_brute_force() {
  std::vector<std::vector<Token>> sequences;
  std::uint32_t random = 1;
  for (int i = 0; i < 40; ++i) {
    std::vector<Token> sequence;
    for (int j = 0; j < i % 9; ++j) {
      random = random * 1664525U + 1013904223U;
      sequence.push_back(static_cast<Token>(random >> 30));
    }
    sequences.push_back(sequence);
  }
  for (int order = 1; order <= dart::kMaxOrder; ++order) {
    NgramBuilder builder(order);
    std::map<std::vector<Token>, std::int64_t> counts;
    for (const auto& sequence : sequences) {
      builder.add(sequence);
      for (std::size_t start = 0; start < sequence.size(); ++start) {
        for (std::size_t length = 0; length <= static_cast<std::size_t>(order); ++length) {
          if (start + length > sequence.size()) break;
          ++counts[{sequence.begin() + start, sequence.begin() + start + length}];
        }
      }
    }
    const auto image = dart::serialize_store(builder.build(), ValueCoding::exact());
    const auto store = NgramStore::view(image, "memory");
    store.verify();
    CHECK(store.num_nodes() == counts.size() - 1);
    for (const auto& [ngram, count] : counts) CHECK(store.count(ngram) == count);
  }
}

// Prevents an empty corpus from making an unreadable file.
void test_empty() {
  NgramBuilder builder(3);
  builder.add(std::vector<Token>{});
  const auto image = dart::serialize_store(builder.build(), ValueCoding::exact());
  const auto store = NgramStore::view(image, "memory");
  store.verify();
  CHECK(store.num_nodes() == 0 && store.vocab_size() == 0 && store.root_count() == 0);
  CHECK(store.count(std::vector<Token>{1}) == 0);
}

// Prevents flat input from being cut at other places than single sequences.
void test_offsets() {
  NgramBuilder flat(3);
  flat.add(std::vector<Token>{1, 2, 3, 4}, std::vector<std::int64_t>{0, 1, 1, 4});
  NgramBuilder single(3);
  single.add(std::vector<Token>{1});
  single.add(std::vector<Token>{2, 3, 4});
  CHECK(dart::serialize_store(flat.build(), ValueCoding::exact()) ==
        dart::serialize_store(single.build(), ValueCoding::exact()));
  const std::vector<Token> tokens{1, 2};
  CHECK_THROWS(flat.add(tokens, std::vector<std::int64_t>{0, 3}), std::invalid_argument, "0..3");
  CHECK_THROWS(flat.add(tokens, std::vector<std::int64_t>{1, 0}), std::invalid_argument, "1..0");
  CHECK_THROWS(flat.add(tokens, std::vector<std::int64_t>{-1, 0}), std::invalid_argument, "-1..0");
}

// Prevents silent acceptance of ids and orders the file cannot hold.
void test_refusals() {
  CHECK_THROWS(NgramBuilder(0), std::invalid_argument, "order is 0");
  CHECK_THROWS(NgramBuilder(9), std::invalid_argument, "order is 9");
  NgramBuilder builder(2);
  CHECK_THROWS(builder.add(std::vector<Token>{1, -5}), std::invalid_argument, "token is -5");
}

// Prevents half-written files: the destination changes at once, and no temporary stays behind.
void test_write() {
  const auto folder = std::filesystem::temp_directory_path() / "dart_test_ngram_builder";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  const std::string path = folder / "store.ngram";
  NgramBuilder builder(2);
  for (int round = 1; round <= 2; ++round) {
    builder.add(std::vector<Token>{5, 6});
    dart::write_store(builder.build(), path, ValueCoding::exact());
    const auto store = NgramStore::open(path);
    store.verify();
    CHECK(store.count(std::vector<Token>{5, 6}) == round);
  }
  CHECK_THROWS(dart::write_store(builder.build(), folder / "no" / "x", ValueCoding::exact()),
               dart::FileError, "no/x");
  CHECK_THROWS(dart::write_store(builder.build(), folder, ValueCoding::exact()), dart::FileError,
               "put in place");
  CHECK_THROWS(NgramStore::open(folder), dart::FileError, "is a directory");
  CHECK_THROWS(NgramStore::open("/dev/null"), dart::FileError, "not a regular file");
  std::filesystem::remove(path);
  CHECK(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

}  // namespace

int main() {
  test_counts_equal_brute_force();
  test_empty();
  test_offsets();
  test_refusals();
  test_write();
}
