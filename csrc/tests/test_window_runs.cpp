// Runs of windows on disk: written, combined, merged in ranges, joined, encoded.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"
#include "dart/errors.h"
#include "dart/level_files.h"
#include "dart/ngram_builder.h"
#include "dart/ngram_encoder.h"
#include "dart/ngram_store.h"
#include "dart/record_file.h"
#include "dart/window.h"
#include "dart/window_runs.h"

namespace {

namespace fs = std::filesystem;
using dart::Count;
using dart::NgramBuilder;
using dart::Token;
using dart::ValueCoding;
using Sequences = std::vector<std::vector<Token>>;

class Folder {
 public:
  Folder()
      : path_(fs::temp_directory_path() / ("dart-runs-" + std::to_string(std::random_device{}()))) {
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::size_t size() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Few different tokens, so that windows repeat, and some at the end of their range.
Sequences make_sequences(std::uint32_t seed) {
  std::mt19937 random(seed);
  Sequences sequences(60);
  for (auto& sequence : sequences) {
    sequence.resize(random() % 12);
    for (Token& token : sequence) {
      token = static_cast<Token>(random() % 5);
      if (token == 4) token = 0x7FFFFFFF;
    }
  }
  return sequences;
}

// The store of the sequences by way of `runs` runs and ranges that begin at `cuts`.
std::string build(const Folder& folder, const Sequences& sequences, int order, std::size_t runs,
                  std::vector<std::int64_t> cuts, const std::vector<Count>& min_counts) {
  std::vector<std::string> paths;
  for (std::size_t run = 0; run < runs; ++run) {
    NgramBuilder builder(order);
    for (std::size_t i = run; i < sequences.size(); i += runs) builder.add(sequences[i]);
    paths.push_back(folder / ("run-" + std::to_string(run)));
    builder.write_run(paths.back());
  }
  if (runs > 3) {  // some are combined first
    dart::combine_runs({paths[0], paths[1], paths[2]}, order, folder / "combined", 1 << 16, {});
    paths.erase(paths.begin(), paths.begin() + 3);
    paths.push_back(folder / "combined");
  }
  cuts.insert(cuts.begin(), 0);
  cuts.push_back(std::int64_t{1} << 31);
  std::vector<std::string> parts;
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    parts.push_back(folder / ("part-" + std::to_string(i) + "-"));
    dart::merge_runs(paths, order, {cuts[i], cuts[i + 1]}, min_counts, parts.back(), 1 << 16, {});
  }
  std::int64_t tokens = 0;
  for (const auto& sequence : sequences) tokens += static_cast<std::int64_t>(sequence.size());
  for (int level = 1; level <= order; ++level) {
    dart::join_level(parts, level, order, folder / "level", {});
  }
  dart::write_store_from_levels(folder / "level", order, tokens, folder / "store",
                                ValueCoding::exact(), {});
  return read(folder / "store");
}

// Prevents a store that depends on how the text was divided, or differs from that made in memory.
void test_division_does_not_matter() {
  const Sequences sequences = make_sequences(3);
  for (const int order : {1, 2, 3, 5, 8}) {
    const std::vector<Count> all(static_cast<std::size_t>(order), 1);
    std::vector<Count> pruned;
    for (int n = 0; n < order; ++n) pruned.push_back(1 + static_cast<Count>(n));
    const auto expected = [&](const std::vector<Count>& min_counts) {
      NgramBuilder builder(order);
      for (const auto& sequence : sequences) builder.add(sequence);
      const auto image = dart::serialize_store(builder.build(min_counts), ValueCoding::exact());
      return std::string(reinterpret_cast<const char*>(image.data()), image.size());
    };
    const Folder folder;
    CHECK(build(folder, sequences, order, 2, {2}, all) == expected(all));
    CHECK(build(folder, sequences, order, 7, {1, 2, 1000, 0x7FFFFFFF}, pruned) == expected(pruned));
    if (order == 2) CHECK(build(folder, sequences, order, 70, {}, all) == expected(all));
  }
}

// Prevents pruning by another count than that of all occurrences, and counts that pruning changes.
void test_pruning() {
  NgramBuilder builder(2);
  for (int i = 0; i < 3; ++i) builder.add(std::vector<Token>{1, 2});
  builder.add(std::vector<Token>{1, 3});
  const auto image =
      dart::serialize_store(builder.build(std::vector<Count>{2, 3}), ValueCoding::exact());
  const auto store = dart::NgramStore::view(image, "memory");
  store.verify();
  CHECK(store.num_nodes() == 3);
  CHECK(store.count(std::vector<Token>{1}) == 4 && store.count(std::vector<Token>{2}) == 3);
  CHECK(store.count(std::vector<Token>{1, 2}) == 3 && store.count(std::vector<Token>{1, 3}) == 0);
  CHECK_THROWS(builder.build(std::vector<Count>{2, 1}), std::invalid_argument, "none below");
  CHECK_THROWS(builder.build(std::vector<Count>{2}), std::invalid_argument, "one minimal count");
}

// Prevents n-grams that are lost or counted twice where a long document is counted in pieces.
void test_pieces_equal_the_whole() {
  std::vector<Token> text;
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) text.push_back(static_cast<Token>(random() % 3));
  const std::span<const Token> all(text);
  for (int order = 1; order <= dart::kMaxOrder; ++order) {
    NgramBuilder whole(order);
    whole.add(text);
    const auto expected = dart::serialize_store(whole.build(), ValueCoding::exact());
    for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{64}}) {
      NgramBuilder pieces(order);
      for (std::size_t begin = 0; begin < text.size(); begin += size) {
        const std::size_t seen = size + static_cast<std::size_t>(order) - 1;
        pieces.add(all.subspan(begin, std::min(seen, text.size() - begin)), size);
      }
      CHECK(pieces.token_count() == text.size());
      CHECK(dart::serialize_store(pieces.build(), ValueCoding::exact()) == expected);
    }
  }
}

// Prevents counts beyond 32 bits from being cut: a window then takes several records.
void test_large_counts() {
  const Folder folder;
  constexpr std::uint32_t kLargest = 0xFFFFFFFFU;
  for (const char* name : {"a", "b"}) {
    dart::RecordWriter<dart::Window<2>> writer(folder / name);
    writer.add({{1, dart::kEnd}, kLargest});
    writer.add({{1, 2}, kLargest});
    writer.commit();
  }
  dart::combine_runs({folder / "a", folder / "b"}, 2, folder / "c", 1 << 16, {});
  CHECK(fs::file_size(folder / "c") == 4 * sizeof(dart::Window<2>));
  dart::merge_runs({folder / "c", folder / "a"}, 2, {}, std::vector<Count>{1, 1}, folder / "l", 1,
                   {});
  const dart::LevelFiles first(folder / "l1", false);
  const dart::LevelFiles second(folder / "l2", true);
  CHECK(first.view().counts[0] == Count{6} * kLargest);
  CHECK(second.view().counts[0] == Count{3} * kLargest);
}

// Prevents files of an interrupted step from being taken for whole ones.
void test_interruption_leaves_nothing() {
  NgramBuilder builder(2);
  std::vector<Token> text(400000);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<Token>(i);
  builder.add(text);
  const Folder folder;
  const dart::Progress stop = [](const std::string&, double done, double total) {
    CHECK(done > 0 && done <= total);
    throw std::runtime_error("stopped");
  };
  CHECK_THROWS(builder.write_run(folder / "run", stop), std::runtime_error, "stopped");
  CHECK(folder.size() == 0);
  builder.write_run(folder / "run");
  const std::vector<Count> all{1, 1};
  CHECK_THROWS(dart::combine_runs({folder / "run"}, 2, folder / "new", 1 << 16, stop),
               std::runtime_error, "stopped");
  CHECK_THROWS(dart::merge_runs({folder / "run"}, 2, {}, all, folder / "part", 1 << 16, stop),
               std::runtime_error, "stopped");
  CHECK(folder.size() == 1);
  dart::merge_runs({folder / "run"}, 2, {}, all, folder / "part", 1 << 16, {});
  CHECK_THROWS(dart::join_level({folder / "part"}, 1, 2, folder / "level", stop),
               std::runtime_error, "stopped");
  CHECK(folder.size() == 1 + 2 * 3);
  CHECK_THROWS(dart::merge_runs({folder / "none"}, 2, {}, all, folder / "part", 1, {}),
               dart::FileError, "a run of unfinished work");
  CHECK_THROWS(dart::combine_runs({}, 9, folder / "new", 1, {}), std::invalid_argument,
               "order is 9");
}

}  // namespace

int main() {
  test_division_does_not_matter();
  test_pruning();
  test_pieces_equal_the_whole();
  test_large_counts();
  test_interruption_leaves_nothing();
}
