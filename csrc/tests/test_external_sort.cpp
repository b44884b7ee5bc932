// Records on disk: sorting beyond memory, merging, columns of a level.
#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "dart/errors.h"
#include "dart/external_sort.h"
#include "dart/level_files.h"
#include "folder.h"

namespace {

namespace fs = std::filesystem;

struct Pair {
  std::uint32_t key;
  std::uint32_t value;
  bool operator<(const Pair& other) const { return key < other.key; }
};

// Equals std::sort, with everything in memory, with some runs, and with more runs than are merged
// at a time.
void test_sorts(const Folder& folder) {
  std::mt19937 random(7);
  for (const std::size_t memory : {std::size_t{128}, std::size_t{1} << 20}) {
    for (const std::size_t count : {0, 1, 16, 17, 1000, 5000, 200000}) {
      if (count > memory * 1000) continue;  // a file per 16 records would take minutes
      std::vector<std::uint64_t> expected;
      std::vector<std::uint64_t> found;
      {
        dart::ExternalSorter<std::uint64_t> sorter(folder / "run-", memory);
        for (std::size_t i = 0; i < count; ++i) {
          expected.push_back(random() % 5000);
          sorter.add(expected.back());
        }
        sorter.finish([&found](std::uint64_t value) { found.push_back(value); });
      }
      std::sort(expected.begin(), expected.end());
      CHECK(found == expected);
      CHECK(folder.files() == 0);
    }
  }
}

// Runs that are given away outlive their sorter and serve another one.
void test_persists(const Folder& folder) {
  std::vector<std::string> runs;
  std::vector<std::uint64_t> expected;
  {
    dart::ExternalSorter<std::uint64_t> sorter(folder / "kept-", 128);
    for (std::uint64_t i = 0; i < 100; ++i) sorter.add(i * 37 % 100);
    runs = sorter.persist();
    CHECK(sorter.count() == 100 && runs.size() == 7);
  }
  for (int again = 0; again < 2; ++again) {
    dart::ExternalSorter<std::uint64_t> sorter(folder / "other-", 128);
    sorter.adopt(runs, 100);
    CHECK(sorter.count() == 100);
    std::uint64_t next = 0;
    sorter.finish([&next](std::uint64_t value) { CHECK(value == next++); });
    CHECK(next == 100);
  }
  for (const std::string& run : runs) CHECK(fs::remove(run));
  CHECK(folder.files() == 0);
}

// Whoever waits for the thread can stop, and nothing stays behind.
void test_interrupts(const Folder& folder) {
  struct Stop {};
  const auto stop = [] { throw Stop{}; };
  bool has_stopped = false;
  try {
    dart::ExternalSorter<std::uint64_t> sorter(folder / "run-", std::size_t{1} << 24,
                                               std::size_t{1} << 22, stop);
    for (std::uint64_t i = 0; i < std::size_t{1} << 22; ++i) sorter.add(i * 0x9E3779B97F4A7C15U);
    sorter.finish([](std::uint64_t) {});
  } catch (const Stop&) {
    has_stopped = true;
  }
  CHECK(has_stopped && folder.files() == 0);
}

void write(const std::string& path, const std::vector<Pair>& records) {
  dart::RecordWriter<Pair> writer(path, 20);  // two records a buffer
  for (const Pair& record : records) writer.add(record);
  writer.commit();
}

// Equal records come in the order of their files, and a reader of a part sees no more.
void test_merges(const Folder& folder) {
  write(folder / "a", {{1, 0}, {3, 0}, {3, 1}, {9, 0}});
  write(folder / "b", {});
  write(folder / "c", {{0, 2}, {3, 2}, {5, 2}});
  std::vector<dart::RecordReader<Pair>> readers;
  readers.emplace_back(folder / "a", 20);
  readers.emplace_back(folder / "b", 20);
  readers.emplace_back(folder / "c", 1);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> found;
  dart::merge(readers, [&](const Pair& pair) { found.emplace_back(pair.key, pair.value); });
  const decltype(found) expected{{0, 2}, {1, 0}, {3, 0}, {3, 1}, {3, 2}, {5, 2}, {9, 0}};
  CHECK(found == expected);
  dart::RecordReader<Pair> part(folder / "a", 20, 1, 3);
  CHECK(part.front().key == 3 && part.front().value == 0);
  part.pop();
  CHECK(part.front().value == 1);
  part.pop();
  CHECK(part.is_at_end());
  CHECK(dart::RecordReader<Pair>(folder / "a", 20, 9).is_at_end());
  CHECK_THROWS(dart::RecordReader<Pair>(folder / "none"), dart::FileError, "cannot be opened");
}

void test_levels(const Folder& folder) {
  dart::LevelWriter writer(folder / "level", false);
  writer.add(4, 10, 2);
  writer.add(7, 11, 2);
  CHECK(!fs::exists(folder / "level.tokens"));
  writer.commit();
  const dart::LevelFiles level(folder / "level", false);
  level.release();
  const dart::LevelView view = level.view();
  CHECK(view.tokens.size() == 2 && view.tokens[1] == 7);
  CHECK(view.counts[0] == 10 && view.counts[1] == 11);
  CHECK(view.children.size() == 3 && view.children[0] == 0 && view.children[2] == 2);
  CHECK_THROWS(dart::LevelFiles(folder / "level", true), dart::FormatError, "level.children");
}

}  // namespace

int main() {
  const Folder folder;
  test_sorts(folder);
  test_persists(folder);
  test_interrupts(folder);
  test_merges(folder);
  test_levels(folder);
  return 0;
}
