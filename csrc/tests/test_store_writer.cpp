// Encoding from levels on disk: the same bytes as from memory, within the memory, after any stop.
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "check.h"
#include "counts.h"
#include "dart/column.h"
#include "dart/errors.h"
#include "dart/level_files.h"
#include "dart/ngram_encoder.h"
#include "dart/pulse.h"

namespace {

namespace fs = std::filesystem;

using dart::Count;
using dart::EncodeLimits;
using dart::LevelData;
using dart::NodeId;
using dart::StoreData;
using dart::Token;
using dart::ValueCoding;

// In memory where that can be had: waiting for a disk is most of the time otherwise.
class Folder {
 public:
  Folder() {
    const fs::path memory = "/dev/shm";
    path_ = (fs::is_directory(memory) ? memory : fs::temp_directory_path()) /
            ("dart-encode-" + std::to_string(std::random_device{}()));
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::size_t count() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(path_), {}));
  }

 private:
  fs::path path_;
};

std::vector<std::byte> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto bytes = std::as_bytes(std::span<const char>(text));
  return {bytes.begin(), bytes.end()};
}

void overwrite(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

void write_levels(const StoreData& data, const std::string& prefix) {
  for (std::size_t depth = 1; depth <= data.levels.size(); ++depth) {
    const LevelData& level = data.levels[depth - 1];
    const bool is_last = depth == data.levels.size();
    dart::LevelWriter writer(prefix + std::to_string(depth), is_last);
    for (std::size_t node = 0; node < level.tokens.size(); ++node) {
      writer.add(level.tokens[node], level.counts[node], is_last ? 0 : level.children[node + 1]);
    }
    writer.commit();
  }
}

void write_store(const StoreData& data, const std::string& prefix, const std::string& destination,
                 ValueCoding coding, EncodeLimits limits = {}) {
  dart::write_store_from_levels(prefix, static_cast<int>(data.levels.size()), data.root_count,
                                destination, coding, limits);
}

StoreData counted(int order, std::size_t length, std::uint32_t vocab, unsigned seed) {
  std::mt19937 random(seed);
  return dart::test::to_data(
      dart::test::count_all(dart::test::random_text(random, length, vocab), order), order);
}

// A node for each token of each parent: large, and closed under suffixes.
StoreData complete(int order, Token vocab) {
  StoreData data;
  data.root_count = 5;
  std::uint64_t nodes = 1;
  for (int depth = 1; depth <= order; ++depth) {
    LevelData& level = data.levels.emplace_back();
    nodes *= static_cast<std::uint64_t>(vocab);
    for (NodeId node = 0; node < nodes; ++node) {
      level.tokens.push_back(static_cast<Token>(node % static_cast<NodeId>(vocab)));
      level.counts.push_back(1 + node * node % 100003);
    }
    if (depth == order) break;
    for (NodeId node = 0; node <= nodes; ++node) {
      level.children.push_back(node * static_cast<NodeId>(vocab));
    }
  }
  return data;
}

// Prevents wrong values after jumps, at the ends of windows and of files.
void test_columns(const Folder& folder) {
  const std::string path = folder / "column";
  std::vector<std::uint64_t> values(150001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i * i;
  dart::ScratchColumn<std::uint64_t> scratch(path, values.size());
  scratch.append(std::span(values).first(100000));
  scratch.append(std::span(values).subspan(100000));
  std::mt19937 random(3);
  for (const auto& column :
       {scratch.column(), dart::Column<std::uint64_t>(std::span<const std::uint64_t>(values))}) {
    CHECK(column.size() == values.size());
    dart::ColumnReader<std::uint64_t> reader(column);
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(reader[i] == values[i]);
    for (int round = 0; round < 2000; ++round) {
      const std::size_t first = random() % values.size();
      const std::size_t most = random() % 9 == 0 ? 60000 : 600;
      const std::size_t last = std::min(first + random() % most, values.size());
      const auto found = reader.range(first, last);
      CHECK(std::equal(found.begin(), found.end(), values.begin() + static_cast<long>(first),
                       values.begin() + static_cast<long>(last)));
      for (std::size_t i = first; i < values.size(); i += 1 + random() % 40000) {
        CHECK(reader[i] == values[i]);
      }
    }
  }
  const dart::Column<std::uint64_t> column = scratch.column();
  fs::resize_file(path, 8 * 1000);
  dart::ColumnReader<std::uint64_t> reader(column);
  CHECK_THROWS(reader[0], dart::FileError, "is shorter than it was");
  fs::remove(path);
}

// Prevents files that depend on where the levels lie or on how much of them is looked at at a time.
void test_same_bytes(const Folder& folder) {
  const std::string prefix = folder / "level-";
  const std::string destination = folder / "x.ngram";
  std::mt19937 random(1);
  std::vector<StoreData> stores;
  for (int order = 1; order <= dart::kMaxOrder; ++order) {
    stores.push_back(counted(order, 600, 12, static_cast<unsigned>(order)));
    const auto text = dart::test::random_text(random, 250, 7);
    const auto pruned =
        dart::test::prune(random, dart::test::count_all(text, order), order % 2 == 0);
    stores.push_back(dart::test::to_data(pruned, order));
    stores.push_back(dart::test::to_data({}, order));
    stores.back().levels.back().children.clear();
  }
  int bits = 2;
  for (const StoreData& data : stores) {
    write_levels(data, prefix);
    bits = bits == 8 ? 2 : bits + 1;
    for (const ValueCoding coding : {ValueCoding::exact(), ValueCoding::quantised(bits)}) {
      const auto expected = dart::serialize_store(data, coding);
      // 0: every run of siblings is looked up on its own; then some together; then all.
      for (const std::size_t memory :
           {std::size_t{0}, (std::size_t{32} << 20) + 2000, std::size_t{64} << 20}) {
        write_store(data, prefix, destination, coding, {.memory_bytes = memory});
        CHECK(read(destination) == expected);
      }
      dart::write_store(data, destination, coding);
      CHECK(read(destination) == expected);
    }
    for (std::size_t depth = 1; depth <= data.levels.size(); ++depth) {
      for (const char* column : {".tokens", ".counts", ".children"}) {
        fs::remove(prefix + std::to_string(depth) + column);
      }
    }
    CHECK(folder.count() == 1);  // the store: nothing is left behind
  }
}

// Prevents the same where windows are many and two threads are at work.
void test_large(const Folder& folder) {
  const StoreData data = complete(3, 70);
  write_levels(data, folder / "level-");
  for (const ValueCoding coding : {ValueCoding::exact(), ValueCoding::quantised(8)}) {
    const auto expected = dart::serialize_store(data, coding);
    for (const std::size_t memory : {(std::size_t{32} << 20) + 100000, std::size_t{64} << 20}) {
      write_store(data, folder / "level-", folder / "x.ngram", coding, {.memory_bytes = memory});
      CHECK(read(folder / "x.ngram") == expected);
    }
  }
}

struct Interrupted : std::runtime_error {
  Interrupted() : std::runtime_error("interrupted") {}
};

// Interrupts at the first call for `level` with at least so many nodes done.
EncodeLimits interrupt_at(int level, std::uint64_t nodes_done) {
  EncodeLimits limits;
  limits.progress = [=](int at, std::uint64_t done, std::uint64_t nodes) {
    CHECK(done <= nodes);
    if (at == level && done >= nodes_done) throw Interrupted();
  };
  return limits;
}

// The first level that a call works on.
int first_level(const StoreData& data, const Folder& folder, ValueCoding coding) {
  int first = 0;
  EncodeLimits limits;
  limits.progress = [&first](int level, std::uint64_t, std::uint64_t) {
    if (first == 0) first = level;
  };
  write_store(data, folder / "level-", folder / "x.ngram", coding, limits);
  return first;
}

// Prevents damage by an interruption, work done twice, and an old store that goes too early.
void test_interruptions(const Folder& folder) {
  const StoreData data = complete(3, 70);
  write_levels(data, folder / "level-");
  for (const ValueCoding coding : {ValueCoding::exact(), ValueCoding::quantised(5)}) {
    const auto expected = dart::serialize_store(data, coding);
    const std::vector<std::byte> old(3);
    for (int level = 1; level <= 3; ++level) {
      const std::uint64_t nodes = data.levels[static_cast<std::size_t>(level - 1)].tokens.size();
      for (const std::uint64_t done : {std::uint64_t{0}, nodes / 3, nodes}) {
        overwrite(folder / "x.ngram", old);
        CHECK_THROWS((write_store(data, folder / "level-", folder / "x.ngram", coding,
                                  interrupt_at(level, done)),
                      0),
                     Interrupted, "");
        CHECK(read(folder / "x.ngram") == old);
        CHECK(first_level(data, folder, coding) == level);
        CHECK(read(folder / "x.ngram") == expected);
      }
    }
    // One interruption after the other.
    for (int level = 1; level <= 3; ++level) {
      CHECK_THROWS(
          (write_store(data, folder / "level-", folder / "x.ngram", coding, interrupt_at(level, 1)),
           0),
          Interrupted, "");
    }
    CHECK(first_level(data, folder, coding) == 3);
    CHECK(read(folder / "x.ngram") == expected);
  }
}

// Prevents going on with the work of another call, or with what is damaged.
void test_begins_anew(const Folder& folder) {
  const ValueCoding coding = ValueCoding::quantised(5);
  const std::string store = folder / "level-encoder-store";
  const std::string state = folder / "level-encoder-state";
  const auto check = [&](const StoreData& data, ValueCoding then, int expected,
                         const auto& change) {
    StoreData first = complete(3, 20);
    write_levels(first, folder / "level-");
    CHECK_THROWS(
        (write_store(first, folder / "level-", folder / "x.ngram", coding, interrupt_at(3, 0)), 0),
        Interrupted, "");
    CHECK(fs::exists(store) && fs::exists(state));
    change();
    CHECK(first_level(data, folder, then) == expected);
    CHECK(read(folder / "x.ngram") == dart::serialize_store(data, then));
    CHECK(!fs::exists(store) && !fs::exists(state));
  };
  const StoreData data = complete(3, 20);
  const auto nothing = [] {};
  check(data, coding, 3, nothing);
  check(data, ValueCoding::quantised(6), 1, nothing);
  check(data, ValueCoding::exact(), 1, nothing);
  StoreData other_root = data;
  other_root.root_count = 6;
  check(other_root, coding, 1, nothing);
  StoreData other_counts = data;
  other_counts.levels[0].counts[3] = 77;
  check(other_counts, coding, 1, [&] { write_levels(other_counts, folder / "level-"); });
  check(data, coding, 1, [&] { fs::remove(store); });
  check(data, coding, 1, [&] { fs::resize_file(store, fs::file_size(store) / 2); });
  check(data, coding, 1, [&] { fs::resize_file(state, fs::file_size(state) - 1); });
  for (std::size_t at = 0; at < 1100; at += 101) {
    check(data, coding, 1, [&] {
      std::vector<std::byte> bytes = read(state);
      CHECK(at < bytes.size());
      bytes[at] ^= std::byte{4};
      overwrite(state, bytes);
    });
  }
}

// Prevents a half-written store, or a message without a reason, where space runs out.
void test_full_disk(const Folder& folder) {
  const StoreData data = complete(2, 100);
  write_levels(data, folder / "level-");
  (void)std::signal(SIGXFSZ, SIG_IGN);
  rlimit usual{};
  CHECK(::getrlimit(RLIMIT_FSIZE, &usual) == 0);
  const rlimit small{10000, usual.rlim_max};
  CHECK(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  CHECK_THROWS(
      (write_store(data, folder / "level-", folder / "new.ngram", ValueCoding::exact()), 0),
      dart::FileError, " (File too large)");
  CHECK(::setrlimit(RLIMIT_FSIZE, &usual) == 0);
  CHECK(!fs::exists(folder / "new.ngram"));
  write_store(data, folder / "level-", folder / "new.ngram", ValueCoding::exact());
  CHECK(read(folder / "new.ngram") == dart::serialize_store(data, ValueCoding::exact()));
}

// Prevents columns that do not belong together from being encoded.
void test_refusals(const Folder& folder) {
  StoreData data = complete(2, 9);
  const auto refuse = [&](const char* part) {
    write_levels(data, folder / "bad-");
    CHECK_THROWS((write_store(data, folder / "bad-", folder / "bad", ValueCoding::exact()), 0),
                 std::invalid_argument, part);
    CHECK(!fs::exists(folder / "bad"));
    data = complete(2, 9);
  };
  data.levels[0].children[9] = 80;
  refuse("do not fit");
  data.levels[0].children[4] = 90;
  refuse("order of their parents");
  data.levels[1].tokens[4] = 3;
  refuse("sorted by token");
  write_levels(data, folder / "bad-");
  fs::resize_file(folder / "bad-1.counts", 8);
  CHECK_THROWS((write_store(data, folder / "bad-", folder / "bad", ValueCoding::exact()), 0),
               dart::FormatError, "bad-1.counts: size is 8 bytes");
  fs::remove(folder / "bad-2.tokens");
  CHECK_THROWS((write_store(data, folder / "bad-", folder / "bad", ValueCoding::exact()), 0),
               std::runtime_error, "bad-");
  CHECK_THROWS((write_store({}, folder / "bad-", folder / "bad", ValueCoding::exact()), 0),
               std::invalid_argument, "1 to 8 levels");
}

// Prevents a thread that goes on after the other one has failed, and lost errors.
void test_both_threads() {
  constexpr std::uint64_t kMany = std::uint64_t{1} << 20;
  const dart::LevelPulse::Report report;
  const auto endless = [](dart::Pulse& pulse) {
    for (NodeId node = 0;; ++node) pulse.at(node);
  };
  const auto fail = [](auto&) { throw Interrupted(); };
  dart::LevelPulse progress(report, 1, kMany, 1);
  CHECK_THROWS((dart::run_both(progress, kMany, fail, endless), 0), Interrupted, "");
  CHECK_THROWS((dart::run_both(progress, kMany, [](auto&) {}, fail), 0), Interrupted, "");
  CHECK_THROWS((dart::run_both(progress, 1, fail, [](auto&) {}), 0), Interrupted, "");
  CHECK_THROWS((dart::run_both(progress, 1, [](auto&) {}, fail), 0), Interrupted, "");
}

}  // namespace

int main() {
  const auto run = [](const auto& test) {
    const Folder folder;
    test(folder);
  };
  run(test_columns);
  run(test_same_bytes);
  run(test_large);
  run(test_interruptions);
  run(test_begins_anew);
  run(test_full_disk);
  run(test_refusals);
  test_both_threads();
}
