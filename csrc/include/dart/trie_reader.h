// Reads the records of an upstream `.trie` dump one after the other.
//
// Little-endian, packed: order u64, number of nodes u64, then a record per node: token i32, id of
// its parent u64, count i32, number of children u64, and for each child token i32 and id u64. Ids
// are record numbers, number 0 is the root; children come in any order.
// source: .trie layout as published with fvliang/DART.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "dart/byte_stream.h"
#include "dart/errors.h"
#include "dart/store_data.h"

namespace dart {

struct TrieRecord {
  Token token;
  std::uint64_t parent;
  std::int32_t count;
  std::uint64_t children;
};

struct TrieChild {
  Token token;
  std::uint64_t id;
};

// Checks sizes, lengths and the range of ids. What else must hold of a file is for the reader's
// user to see, who tells it with fail().
class TrieReader {
 public:
  // Reads the head. Throws FormatError.
  TrieReader(ByteStream& bytes, std::string name);

  int order() const { return order_; }
  std::uint64_t node_count() const { return node_count_; }

  // Goes on to record `id`, which must not lie behind; passes over others and, unless they are to
  // be checked, over child entries. Throws FormatError.
  TrieRecord read(std::uint64_t id, bool checks_children);
  // The next child of the record read last; there must be one.
  TrieChild next_child() {
    const std::byte* const entry = bytes_.take(kChildBytes);
    --children_left_;
    const TrieChild child{load<Token>(entry), load<std::uint64_t>(entry + 4)};
    if (child.id - 1 >= node_count_ - 1) refuse_child_id(child);
    if (child.token < 0) fail(of_node("token", child.id), child.token, "0 or more");
    return child;
  }
  // Reads all records that are left, and checks that the last one ends the file.
  void finish();
  void rewind();
  // `report` is called with the id now and then while records are read; it may throw.
  void set_report(std::function<void(std::uint64_t id)> report) { report_ = std::move(report); }

  // Throws a FormatError: `field` is `found`, expected `expected`.
  template <typename Found, typename Expected>
  [[noreturn]] void fail(const std::string& field, const Found& found,
                         const Expected& expected) const {
    throw FormatError(name_, field, text(found), text(expected),
                      "check that the file is a complete .trie file, or download it again");
  }
  static std::string of_node(const char* what, std::uint64_t node) {
    return std::string(what) + " of node " + std::to_string(node);
  }

 private:
  static constexpr std::uint64_t kHeadBytes = 16;
  static constexpr std::uint64_t kRecordBytes = 24;  // without the child entries
  static constexpr std::uint64_t kChildBytes = 12;

  template <typename T>
  static T load(const std::byte* from) {
    T value;
    std::memcpy(&value, from, sizeof(T));
    return value;
  }
  static std::string text(const std::string& value) { return value; }
  static std::string text(std::integral auto value) { return std::to_string(value); }

  TrieRecord next_record();
  void pass_children(bool checks);
  [[noreturn]] void refuse_child_id(const TrieChild& child) const;

  ByteStream& bytes_;
  std::string name_;
  int order_ = 0;
  std::uint64_t node_count_ = 0;
  std::function<void(std::uint64_t id)> report_;
  std::uint64_t next_id_ = 0;
  std::uint64_t children_left_ = 0;  // of the record before, not read yet
};

}  // namespace dart
