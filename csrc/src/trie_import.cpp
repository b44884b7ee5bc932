#include "dart/trie_import.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "dart/errors.h"
#include "dart/mapped_file.h"

namespace dart {
namespace {

// Bytes on disk: a record without its child list, one child entry, and the two leading fields.
constexpr std::uint64_t kRecordBytes = 24;
constexpr std::uint64_t kChildBytes = 12;
constexpr std::uint64_t kHeadBytes = 16;

class TrieReader {
 public:
  TrieReader(std::span<const std::byte> bytes, const std::string& name)
      : bytes_(bytes), name_(name) {}

  StoreData read() {
    read_head();
    read_records();
    return sort_levels();
  }

 private:
  template <typename T>
  T load(std::uint64_t offset) const {
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }

  template <typename T, typename U>
  [[noreturn]] void fail(const std::string& field, T found, U expected) const {
    throw FormatError(name_, field, text(found), text(expected),
                      "check that the file is a complete .trie file, or download it again");
  }
  static std::string text(const std::string& value) { return value; }
  template <typename T>
    requires std::is_integral_v<T>
  static std::string text(T value) {
    return std::to_string(value);
  }
  static std::string of_node(const char* what, std::uint64_t node) {
    return std::string(what) + " of node " + std::to_string(node);
  }

  void read_head() {
    if (bytes_.size() < kHeadBytes + kRecordBytes) {
      fail("file size", bytes_.size(), std::string("at least 40 bytes"));
    }
    const auto order = load<std::uint64_t>(0);
    if (order < 1 || order > kMaxOrder) fail("order", order, std::string("1..8"));
    order_ = static_cast<int>(order);
    const auto nodes = load<std::uint64_t>(8);
    if (nodes < 1 || nodes > std::min(bytes_.size() / kRecordBytes, kMaxLevelNodes)) {
      fail("node_count", nodes,
           "1.." + text(std::min(bytes_.size() / kRecordBytes, kMaxLevelNodes)));
    }
    const std::uint64_t size = kHeadBytes + kRecordBytes * nodes + kChildBytes * (nodes - 1);
    if (bytes_.size() != size) {
      fail("file size", text(bytes_.size()) + " bytes",
           text(size) + " bytes for " + text(nodes) + " nodes");
    }
    node_count_ = nodes;
  }

  // First pass: where every record is, and that ids and lengths stay in range. Second pass: that
  // each child entry agrees with the record it names, and that no node has two parents.
  void read_records() {
    records_.resize(node_count_);
    std::uint64_t at = kHeadBytes;
    for (std::uint64_t node = 0; node < node_count_; ++node) {
      if (bytes_.size() - at < kRecordBytes) {
        fail(of_node("record", node), std::string("cut off"), std::string("24 bytes or more"));
      }
      records_[node] = at;
      const std::uint64_t children = child_count(node);
      at += kRecordBytes;
      if (children > (bytes_.size() - at) / kChildBytes) {
        fail(of_node("child count", node), children,
             "at most " + text((bytes_.size() - at) / kChildBytes));
      }
      at += kChildBytes * children;
    }
    if (at != bytes_.size()) {
      fail("trailing bytes", bytes_.size() - at, std::string("0"));
    }
    if (parent(0) != 0) fail("parent of the root", parent(0), 0);
    std::vector<bool> has_parent(node_count_, false);
    for (std::uint64_t node = 0; node < node_count_; ++node) {
      for (std::uint64_t i = 0; i < child_count(node); ++i) {
        const auto [token, child] = child_entry(node, i);
        if (child < 1 || child >= node_count_) {
          fail(of_node("child id", node), child, "1.." + text(node_count_ - 1));
        }
        if (has_parent[child]) {
          fail(of_node("child id", node), text(child) + " again", std::string("each id once"));
        }
        has_parent[child] = true;
        if (parent(child) != node) fail(of_node("parent id", child), parent(child), node);
        if (token < 0) fail(of_node("token", child), token, std::string("0 or more"));
        if (load<Token>(records_[child]) != token) {
          fail(of_node("token", child), load<Token>(records_[child]), token);
        }
      }
    }
  }

  // Breadth first from the root, siblings sorted by token: the order of a store's levels. Every
  // node has exactly one parent by now, so a cycle shows as nodes that are never reached.
  StoreData sort_levels() const {
    StoreData data;
    data.root_count = frequency(0);
    data.levels.resize(order_);
    std::vector<NodeId> parents{0};  // of the level being made; the root has no level
    std::vector<NodeId> nodes;
    std::vector<std::pair<Token, NodeId>> siblings;
    std::uint64_t reached = 1;
    for (int depth = 0; depth < order_; ++depth) {
      LevelData& level = data.levels[depth];
      std::vector<NodeId>* const starts = depth > 0 ? &data.levels[depth - 1].children : nullptr;
      nodes.clear();
      for (const NodeId node : parents) {
        if (starts != nullptr) starts->push_back(nodes.size());
        siblings.clear();
        for (std::uint64_t i = 0; i < child_count(node); ++i) {
          const auto [token, child] = child_entry(node, i);
          siblings.emplace_back(token, child);
        }
        std::sort(siblings.begin(), siblings.end());
        for (std::size_t i = 0; i < siblings.size(); ++i) {
          const auto [token, child] = siblings[i];
          if (i > 0 && siblings[i - 1].first == token) {
            fail(of_node("child token", node), text(token) + " twice",
                 std::string("distinct tokens"));
          }
          level.tokens.push_back(token);
          level.counts.push_back(static_cast<Count>(std::max(frequency(child), 0)));
          nodes.push_back(child);
        }
      }
      if (starts != nullptr) starts->push_back(nodes.size());
      reached += nodes.size();
      parents.swap(nodes);
    }
    if (reached != node_count_) {
      fail("nodes within " + text(order_) + " steps of the root", reached, node_count_);
    }
    return data;
  }

  std::uint64_t parent(std::uint64_t node) const { return load<std::uint64_t>(records_[node] + 4); }
  std::int32_t frequency(std::uint64_t node) const {
    return load<std::int32_t>(records_[node] + 12);
  }
  std::uint64_t child_count(std::uint64_t node) const {
    return load<std::uint64_t>(records_[node] + 16);
  }
  std::pair<Token, std::uint64_t> child_entry(std::uint64_t node, std::uint64_t index) const {
    const std::uint64_t at = records_[node] + kRecordBytes + kChildBytes * index;
    return {load<Token>(at), load<std::uint64_t>(at + 4)};
  }

  std::span<const std::byte> bytes_;
  const std::string& name_;
  int order_ = 0;
  std::uint64_t node_count_ = 0;
  std::vector<std::uint64_t> records_;  // byte offset of each node's record
};

}  // namespace

StoreData parse_trie(std::span<const std::byte> bytes, const std::string& name) {
  return TrieReader(bytes, name).read();
}

void import_trie(const std::string& source, const std::string& destination, ValueCoding coding) {
  const MappedFile file(source, "an upstream .trie file", "check the path of the .trie file");
  write_store(parse_trie(file.bytes(), source), destination, coding);
}

}  // namespace dart
