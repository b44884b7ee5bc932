#include <cstring>
#include <vector>

#include "check.h"
#include "dart/errors.h"
#include "dart/ngram_store.h"
#include "dart/trie_import.h"

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

}  // namespace

int main() {
  test_import();
  test_refusals();
  test_damage_everywhere();
  test_store_names_the_import();
}
