#include "dart/trie_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dart/ngram_format.h"

namespace dart {

TrieReader::TrieReader(ByteStream& bytes, std::string name)
    : bytes_(bytes), name_(std::move(name)) {
  const std::uint64_t size = bytes_.size();
  if (size < kHeadBytes + kRecordBytes) fail("file size", size, "at least 40 bytes");
  const std::byte* const head = bytes_.take(kHeadBytes);
  if (std::memcmp(head, kMagic, sizeof(kMagic)) == 0) {
    throw FormatError(name_, "format", "an n-gram store", "an upstream .trie file",
                      "a store needs no import, give it where one is asked for");
  }
  const auto order = load<std::uint64_t>(head);
  const auto nodes = load<std::uint64_t>(head + 8);
  if (order < 1 || order > kMaxOrder) fail("order", order, "1..8");
  order_ = static_cast<int>(order);
  const std::uint64_t most = std::min(size / kRecordBytes, kMaxLevelNodes);
  if (nodes < 1 || nodes > most) fail("node_count", nodes, "1.." + text(most));
  const std::uint64_t expected = kHeadBytes + kRecordBytes * nodes + kChildBytes * (nodes - 1);
  if (size != expected) {
    fail("file size", text(size) + " bytes",
         text(expected) + " bytes for " + text(nodes) + " nodes");
  }
  node_count_ = nodes;
}

TrieRecord TrieReader::read(std::uint64_t id, bool checks_children) {
  for (;;) {
    pass_children(checks_children);
    const TrieRecord record = next_record();
    if (next_id_ > id) return record;
  }
}

void TrieReader::finish() {
  if (next_id_ < node_count_) read(node_count_ - 1, true);
  pass_children(true);
  if (bytes_.left() != 0) fail("trailing bytes", bytes_.left(), 0);
}

void TrieReader::rewind() {
  bytes_.rewind();
  bytes_.skip(kHeadBytes);
  next_id_ = 0;
  children_left_ = 0;
}

TrieRecord TrieReader::next_record() {
  constexpr std::uint64_t kReportEvery = std::uint64_t{1} << 15;
  if (next_id_ % kReportEvery == 0 && report_) report_(next_id_);
  if (bytes_.left() < kRecordBytes) {
    fail(of_node("record", next_id_), "cut off", "24 bytes or more");
  }
  const std::byte* const at = bytes_.take(kRecordBytes);
  const TrieRecord record{load<Token>(at), load<std::uint64_t>(at + 4), load<std::int32_t>(at + 12),
                          load<std::uint64_t>(at + 16)};
  if (record.children > bytes_.left() / kChildBytes) {
    fail(of_node("child count", next_id_), record.children,
         "at most " + text(bytes_.left() / kChildBytes));
  }
  children_left_ = record.children;
  ++next_id_;
  return record;
}

void TrieReader::pass_children(bool checks) {
  if (checks) {
    while (children_left_ > 0) next_child();
  } else {
    bytes_.skip(kChildBytes * children_left_);
    children_left_ = 0;
  }
}

void TrieReader::refuse_child_id(const TrieChild& child) const {
  fail(of_node("child id", next_id_ - 1), child.id, "1.." + text(node_count_ - 1));
}

}  // namespace dart
