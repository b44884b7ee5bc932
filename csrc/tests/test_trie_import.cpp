#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "dart/errors.h"
#include "dart/ngram_store.h"
#include "dart/trie_import.h"
#include "folder.h"

using dart::FormatError;
using dart::NgramStore;
using dart::parse_trie;
using dart::Token;
using dart::ValueCoding;

namespace {

using Bytes = std::vector<std::byte>;

template <typename T>
void put(Bytes& bytes, T value) {
  const auto* raw = reinterpret_cast<const std::byte*>(&value);
  bytes.insert(bytes.end(), raw, raw + sizeof(T));
}

struct Record {
  std::int32_t token;
  std::uint64_t parent;
  std::int32_t count;
  std::vector<std::pair<std::int32_t, std::uint64_t>> children;
};

Bytes make_trie(std::uint64_t order, const std::vector<Record>& records) {
  Bytes bytes;
  put(bytes, order);
  put<std::uint64_t>(bytes, records.size());
  for (const Record& record : records) {
    put(bytes, record.token);
    put(bytes, record.parent);
    put(bytes, record.count);
    put<std::uint64_t>(bytes, record.children.size());
    for (const auto& [token, id] : record.children) {
      put(bytes, token);
      put(bytes, id);
    }
  }
  return bytes;
}

// root -> 7 (5 times), 4 (2); 7 -> 4 (3), 2 (0: pruned); children in no order, ids in no order.
std::vector<Record> records() {
  return {{0, 0, -4, {{7, 2}, {4, 1}}},
          {4, 0, 2, {}},
          {7, 0, 5, {{4, 4}, {2, 3}}},
          {2, 2, 0, {}},
          {4, 2, 3, {}}};
}

// Prevents children from being stored unsorted or under another parent, and pruned counts from
// being used.
void test_import() {
  const auto image =
      dart::serialize_store(parse_trie(make_trie(2, records()), "memory"), ValueCoding::exact());
  const auto store = NgramStore::view(image, "memory");
  store.verify();
  CHECK(store.order() == 2 && store.num_nodes() == 4 && store.root_count() == -4);
  CHECK(store.count(std::vector<Token>{7}) == 5);
  CHECK(store.count(std::vector<Token>{4}) == 2);
  CHECK(store.count(std::vector<Token>{7, 4}) == 3);
  CHECK(store.count(std::vector<Token>{7, 2}) == 0);
}

// Prevents each inconsistency a file can have from slipping through.
void test_refusals() {
  const auto refuse = [](const char* part, std::uint64_t order, const auto& change) {
    auto changed = records();
    change(changed);
    CHECK_THROWS(parse_trie(make_trie(order, changed), "memory"), FormatError, part);
    CHECK_THROWS(parse_trie(make_trie(order, changed), "memory", true), FormatError, part);
  };
  const auto keep = [](auto&) {};
  refuse("order is 0", 0, keep);
  refuse("order is 9", 9, keep);
  refuse("nodes within 1 steps of the root is 3, expected 5", 1, keep);
  refuse("parent of the root", 2, [](auto& r) { r[0].parent = 1; });
  refuse("parent id of node 3", 2, [](auto& r) { r[3].parent = 1; });
  refuse("child id of node 2 is 9", 2, [](auto& r) { r[2].children[1].second = 9; });
  refuse("child id of node 2 is 0", 2, [](auto& r) { r[2].children[1].second = 0; });
  refuse("child id of node 2 is 4 again", 2, [](auto& r) { r[2].children[1].second = 4; });
  refuse("token of node 3 is 2, expected 5", 2, [](auto& r) { r[2].children[1].first = 5; });
  refuse("token of node 3 is -2", 2, [](auto& r) {
    r[2].children[1].first = -2;
    r[3].token = -2;
  });
  refuse("child token of node 2 is 4 twice", 2, [](auto& r) {
    r[2].children[1].first = 4;
    r[3].token = 4;
  });
  // Nodes 2 and 3 point at each other: every node has one parent, but the root reaches only two.
  refuse("steps of the root is 3, expected 5", 2, [](auto& r) {
    r[0].children = {{4, 1}, {4, 4}};
    r[0].children[1].first = 5;
    r[4] = {5, 0, 3, {}};
    r[2] = {7, 3, 5, {{2, 3}}};
    r[3] = {2, 2, 1, {{7, 2}}};
  });
}

// Prevents out-of-bounds reads for any damaged byte, missing end or extra byte (with sanitizers).
void test_damage_everywhere() {
  const Bytes trie = make_trie(2, records());
  for (std::size_t i = 0; i < trie.size(); ++i) {
    for (const int flip : {0x01, 0x10, 0x80, 0xFF}) {
      Bytes damaged = trie;
      damaged[i] ^= static_cast<std::byte>(flip);
      try {
        const auto image =
            dart::serialize_store(parse_trie(damaged, "memory"), ValueCoding::quantised(8));
        NgramStore::view(image, "memory").verify();
      } catch (const FormatError&) {
      }
    }
    CHECK_THROWS(parse_trie(Bytes(trie.begin(), trie.begin() + i), "memory"), FormatError,
                 "expected");
  }
  Bytes longer = trie;
  longer.push_back(std::byte{0});
  CHECK_THROWS(parse_trie(longer, "memory"), FormatError, "file size");
}

// Prevents a user from being told "corrupt" about a good file of the other format.
void test_store_names_the_import() {
  const Bytes trie = make_trie(2, records());
  CHECK_THROWS(NgramStore::view(trie, "x.trie"), FormatError, "python -m dart ngram import x.trie");
}

namespace fs = std::filesystem;

void write(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

Bytes read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> chars((std::istreambuf_iterator<char>(in)), {});
  Bytes bytes(chars.size());
  std::memcpy(bytes.data(), chars.data(), chars.size());
  return bytes;
}

// A tree of any shape, its ids shuffled: children before parents, too. Some counts are <= 0.
Bytes random_trie(std::mt19937& random, int order, std::size_t nodes) {
  struct Node {
    std::int32_t token = 0;
    std::size_t parent = 0;
    int depth = 0;
    std::set<std::int32_t> tokens = {};  // of its children
  };
  std::vector<Node> tree(1);
  while (tree.size() < nodes) {
    const std::size_t parent = random() % tree.size();
    const auto token = static_cast<std::int32_t>(random() % 90);
    if (tree[parent].depth == order || !tree[parent].tokens.insert(token).second) continue;
    tree.push_back({token, parent, tree[parent].depth + 1});
  }
  std::vector<std::uint64_t> ids(nodes);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin() + 1, ids.end(), random);
  std::vector<Record> records(nodes);
  for (std::size_t i = 0; i < nodes; ++i) {
    Record& record = records[ids[i]];
    record.token = tree[i].token;
    record.parent = ids[tree[i].parent];
    record.count = static_cast<std::int32_t>(random() % 60) - 3;
    if (i > 0) records[record.parent].children.emplace_back(record.token, ids[i]);
  }
  for (Record& record : records) {
    std::shuffle(record.children.begin(), record.children.end(), random);
  }
  return make_trie(static_cast<std::uint64_t>(order), records);
}

// Prevents a file that does not fit the memory, or the ids 32 bits, from giving another store.
void test_every_way_gives_the_same(const Folder& folder) {
  std::mt19937 random(3);
  for (const int order : {1, 2, 3, 5, 8}) {
    for (const std::size_t nodes : {1, 2, 40, 700}) {
      if (order == 1 && nodes > 90) continue;
      const Bytes trie = random_trie(random, order, nodes);
      write(folder / "x.trie", trie);
      for (const auto coding : {ValueCoding::exact(), ValueCoding::quantised(4)}) {
        const Bytes expected = dart::serialize_store(parse_trie(trie, "memory"), coding);
        NgramStore::view(expected, "memory").verify();
        CHECK(dart::serialize_store(parse_trie(trie, "memory", true), coding) == expected);
        for (const std::uint64_t memory : {1, 4000, 1 << 30}) {
          dart::import_trie(folder / "x.trie", folder / "x.ngram", coding, {memory});
          CHECK(read(folder / "x.ngram") == expected);
        }
      }
    }
  }
  CHECK(folder.files() == 2);
}

// Prevents a stop at any step from being the end, from doing all again, and from another result.
void test_goes_on(const Folder& folder) {
  struct Stop {};
  std::mt19937 random(4);
  const Bytes trie = random_trie(random, 4, 300);
  write(folder / "x.trie", trie);
  const Bytes expected = dart::serialize_store(parse_trie(trie, "memory"), ValueCoding::exact());
  int stops = 0;
  std::vector<int> steps;  // that the second run needs, by where the first one stopped
  for (bool is_done = false; !is_done; ++stops) {
    fs::remove(folder / "x.ngram");
    std::string said;
    const auto tell = [&said](const std::string& notice) { said += notice; };
    int calls = 0;
    const auto stop = [&](const std::string&, double, double) {
      if (calls++ == stops) throw Stop{};
    };
    try {
      dart::import_trie(folder / "x.trie", folder / "x.ngram", ValueCoding::exact(),
                        {4000, stop, tell});
      is_done = true;
    } catch (const Stop&) {
      CHECK(!fs::exists(folder / "x.ngram") && fs::exists(folder / "x.ngram.import"));
      CHECK(said.empty());
      int needed = 0;
      const auto count = [&needed](const std::string&, double, double) { ++needed; };
      dart::import_trie(folder / "x.trie", folder / "x.ngram", ValueCoding::exact(),
                        {4000, count, tell});
      steps.push_back(needed);
      CHECK((said.find("going on") != std::string::npos) == (stops > 1));
    }
    CHECK(read(folder / "x.ngram") == expected);
    CHECK(!fs::exists(folder / "x.ngram.import"));
  }
  CHECK(stops > 10 && std::is_sorted(steps.rbegin(), steps.rend()) &&
        steps.back() < steps.front() / 4);
}

// Prevents the work on one file from being taken for that on another, and a user's folder from
// being emptied.
void test_foreign_work(const Folder& folder) {
  struct Stop {};
  std::mt19937 random(5);
  write(folder / "x.trie", random_trie(random, 3, 200));
  const auto stop_late = [](const std::string& stage, double, double) {
    if (stage == "reading level 2 of 3") throw Stop{};
  };
  std::string said;
  const auto tell = [&said](const std::string& notice) { said += notice; };
  try {
    dart::import_trie(folder / "x.trie", folder / "x.ngram", ValueCoding::exact(), {1, stop_late});
    CHECK(false);
  } catch (const Stop&) {
  }
  const Bytes other = random_trie(random, 3, 201);
  write(folder / "x.trie", other);
  dart::import_trie(folder / "x.trie", folder / "x.ngram", ValueCoding::exact(), {1, {}, tell});
  CHECK(said.find("discarding") != std::string::npos);
  CHECK(read(folder / "x.ngram") ==
        dart::serialize_store(parse_trie(other, "memory"), ValueCoding::exact()));

  fs::create_directories(folder / "x.ngram.import");
  write(folder / "x.ngram.import/letter", {});
  CHECK_THROWS(
      (dart::import_trie(folder / "x.trie", folder / "x.ngram", ValueCoding::exact(), {1}), 0),
      dart::FileError, "holds files of somebody else");
  CHECK(fs::exists(folder / "x.ngram.import/letter"));
  fs::remove_all(folder / "x.ngram.import");
}

// Prevents damage from being overlooked, or work from being left behind, on the way over the disk.
void test_damage_on_disk(const Folder& folder) {
  const Bytes trie = make_trie(2, records());
  for (std::size_t i = 0; i < trie.size(); ++i) {
    Bytes damaged = trie;
    damaged[i] ^= std::byte{0x11};
    std::string expected, found;
    try {
      parse_trie(damaged, folder / "x.trie");
    } catch (const FormatError& error) {
      expected = error.what();
    }
    write(folder / "x.trie", damaged);
    try {
      dart::import_trie(folder / "x.trie", folder / "x.ngram", ValueCoding::exact(), {1});
    } catch (const FormatError& error) {
      found = error.what();
    }
    CHECK(found == expected);
    CHECK(!fs::exists(folder / "x.ngram.import"));
  }
}

}  // namespace

int main() {
  const Folder folder;
  test_every_way_gives_the_same(folder);
  test_goes_on(folder);
  test_foreign_work(folder);
  test_damage_on_disk(folder);
  test_import();
  test_refusals();
  test_damage_everywhere();
  test_store_names_the_import();
}
