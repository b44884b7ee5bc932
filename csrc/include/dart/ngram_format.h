// The n-gram file: layout, and the writer that builder and importer share. Reading is
// ngram_store.h.
//
// Little-endian. A 576-byte header, then for every level (1 = single tokens .. order) three
// sections, each padded with zeros to a multiple of 8 bytes, in this order without gaps:
//   tokens    int32  [nodes]      sorted within each parent's children
//   counts    uint32 [nodes]      occurrences of the n-gram; 0 = treated as absent
//   children  uint32 [nodes + 1]  node i has children children[i] .. children[i+1] of the next
//                                 level; the last level has no such section
// Nodes of a level are ordered by parent, so a level's children are one ascending run each. The
// root has no record: its children are all of level 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dart {

using Token = std::int32_t;
using NodeId = std::uint32_t;  // index into one level

inline constexpr int kMaxOrder = 8;
inline constexpr NodeId kNoNode = 0xFFFFFFFFU;
// A level's node indices and its end must be NodeIds other than kNoNode.
inline constexpr std::uint64_t kMaxLevelNodes = 0xFFFFFFFEU;

inline constexpr char kMagic[8] = {'D', 'A', 'R', 'T', 'N', 'G', 'R', 'M'};
inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr std::uint32_t kEndianMark = 0x01020304U;

struct LevelRecord {
  std::uint64_t node_count;
  std::uint64_t tokens_offset;  // bytes from the start of the file, like the next two
  std::uint64_t counts_offset;
  std::uint64_t children_offset;  // 0 in the last level
  std::uint64_t tokens_checksum;  // of the section with its padding, like the next two
  std::uint64_t counts_checksum;
  std::uint64_t children_checksum;  // 0 in the last level
  std::uint64_t reserved;           // 0
};

struct FileHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t endian_mark;
  std::uint32_t order;
  std::uint32_t reserved;         // 0
  std::uint64_t vocab_size;       // largest token + 1; 0 in an empty store
  std::int64_t root_count;        // tokens counted; may be negative in pruned upstream files
  std::uint64_t file_bytes;       // size of the whole file
  std::uint64_t header_checksum;  // of the header with this field 0
  std::uint64_t reserved2;        // 0
  LevelRecord levels[kMaxOrder];  // levels beyond order are all 0
};
static_assert(sizeof(LevelRecord) == 64 && sizeof(FileHeader) == 576);

// Node arrays of one level, as in the file; `children` is empty in the last level.
struct LevelData {
  std::vector<Token> tokens;
  std::vector<std::uint32_t> counts;
  std::vector<NodeId> children;
};

// A whole store in memory, before it is written. levels[i] holds the (i+1)-grams.
struct StoreData {
  std::int64_t root_count = 0;
  std::vector<LevelData> levels;
};

// Checksum of `bytes` (size a multiple of 8). Every step is a bijection of the state for a fixed
// word, so a change confined to one 8-byte word is always seen.
std::uint64_t checksum(std::span<const std::byte> bytes);
std::uint64_t header_checksum(FileHeader header);

// Sets every offset and `file_bytes` from order and node counts, the one layout a file may have.
// The caller has checked 1 <= order <= kMaxOrder and node counts <= kMaxLevelNodes.
void lay_out(FileHeader& header);

// Writes to a temporary file beside `path`, flushes it to disk, then renames, so that a reader sees
// the old file or the whole new one. Throws FileError.
void write_store(const StoreData& data, const std::string& path);

// The bytes write_store would write, for tests and fuzzers.
std::vector<std::byte> serialize_store(const StoreData& data);

}  // namespace dart
