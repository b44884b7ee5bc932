// The layout of the n-gram file. Writing it is ngram_encoder.h, reading it ngram_store.h.
//
// Little-endian. A 704-byte header, then for every level (1 = single tokens .. order) three
// sections, each a whole number of 64-bit words, in this order without gaps:
//   tokens    Elias-Fano, one value per node, ascending over the whole level: the node's code plus
//             the base of its siblings, which is the last value of the siblings before + 1 (0 for
//             the first). The code is the token or, in a remapped level, the place of the token
//             among the children of the context without its first token.
//   children  Elias-Fano, one value per node: the end of its children in the next level, where
//             those of the next node begin. The last level has no such section.
//   values    the codebook, ascending, padded with zeros to whole words; then per node a packed
//             index into it, as many bits as the largest takes.
// Nodes of a level are ordered by parent, siblings by token. The root has no record: its children
// are all of level 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "dart/elias_fano.h"
#include "dart/store_data.h"

namespace dart {

inline constexpr char kMagic[8] = {'D', 'A', 'R', 'T', 'N', 'G', 'R', 'M'};
inline constexpr std::uint32_t kFormatVersion = 2;
inline constexpr std::uint32_t kEndianMark = 0x01020304U;
inline constexpr std::uint64_t kMaxUniverse = std::uint64_t{1} << 56;
inline constexpr std::uint64_t kMaxCodebook = std::uint64_t{1} << 32;

// What a file knows of its n-grams; in both kinds 0 means absent.
enum class ValueKind : std::uint32_t {
  kExact = 0,      // counts, uint64
  kQuantised = 1,  // probabilities given the context, float32; none in level 1
};

struct LevelRecord {
  std::uint64_t node_count;
  std::uint64_t token_universe;  // last value of `tokens` + 1; 0 if there are no nodes
  std::uint64_t codebook_size;
  std::uint32_t is_remapped;
  std::uint32_t reserved;         // 0
  std::uint64_t tokens_offset;    // bytes from the start of the file, like the next two
  std::uint64_t children_offset;  // 0 in the last level
  std::uint64_t values_offset;
  std::uint64_t tokens_checksum;    // of the whole section, like the next two
  std::uint64_t children_checksum;  // 0 in the last level
  std::uint64_t values_checksum;
};

struct FileHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t endian_mark;
  std::uint32_t order;
  ValueKind value_kind;
  std::uint64_t vocab_size;       // largest token + 1; 0 in an empty store
  std::int64_t root_count;        // tokens counted; may be negative in pruned upstream files
  std::uint64_t file_bytes;       // size of the whole file
  std::uint64_t header_checksum;  // of the header with this field 0
  std::uint64_t reserved;         // 0
  LevelRecord levels[kMaxOrder];  // levels beyond order are all 0
};
static_assert(sizeof(LevelRecord) == 80 && sizeof(FileHeader) == 704);

// Checksum of a multiple of 8 bytes, taken in pieces of such. Every step is a bijection of the
// state for a fixed word, so a change confined to one 8-byte word is always seen.
class Checksum {
 public:
  explicit Checksum(std::uint64_t bytes_in_all) : state_(0x243F6A8885A308D3ULL ^ bytes_in_all) {}
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_;
};
std::uint64_t checksum(std::span<const std::byte> bytes);
std::uint64_t header_checksum(FileHeader header);

// Level `depth` (from 1): how its sections are made up.
EliasFanoLayout tokens_layout(const FileHeader& header, int depth);
EliasFanoLayout children_layout(const FileHeader& header, int depth);  // not of the last level
struct ValuesLayout {
  std::uint64_t codebook_words = 0;
  int code_width = 0;
  std::uint64_t words = 0;  // of the whole section
};
ValuesLayout values_layout(const FileHeader& header, int depth);

// Sets every offset and `file_bytes` from the other fields, the one layout a file may have. The
// caller has checked order, node counts, universes and codebook sizes against their limits.
void lay_out(FileHeader& header);

}  // namespace dart
