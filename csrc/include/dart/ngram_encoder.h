// Writes n-gram files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "dart/ngram_format.h"
#include "dart/store_data.h"

namespace dart {

struct ValueCoding {
  ValueKind kind = ValueKind::kQuantised;
  int bits = 8;  // of quantised values, 2..8

  static ValueCoding exact() { return {ValueKind::kExact, 0}; }
  static ValueCoding quantised(int bits) { return {ValueKind::kQuantised, bits}; }
};

// Encodes level after level, so that no more than a few levels need to be at hand at a time.
//
// A level is remapped where that is possible and smaller. It is possible where every n-gram's
// suffix (the n-gram without its first token) occurs, too: always in what was counted from text.
// Memory: the encoded level, and of the level and the one before up to 8 bytes per node.
class StoreEncoder {
 public:
  using Append = std::function<void(std::span<const std::byte>)>;

  // `append` takes the file from its first byte, with zeros for the header, which finish() returns.
  // Throws std::invalid_argument for an order or a number of bits out of range.
  StoreEncoder(int order, std::int64_t root_count, ValueCoding coding, Append append);

  // The (n+1)-grams, after n levels. The arrays of the two levels added before must still be there.
  // Throws std::invalid_argument for arrays that do not fit each other or are out of order.
  void add_level(const LevelView& level);
  // The header, to be written over the first bytes. Throws std::logic_error before all levels.
  FileHeader finish();

 private:
  void check(const LevelView& level) const;
  std::span<const NodeId> parents() const;
  std::vector<std::uint32_t> remap(const LevelView& level);
  void append_tokens(const LevelView& level, const std::vector<std::uint32_t>& remapped);
  void append_children(const LevelView& level);
  void append_counts(const LevelView& level);
  void append_probabilities(const LevelView& level);
  std::uint64_t append_words(std::span<const std::uint64_t> words);

  ValueCoding coding_;
  Append append_;
  FileHeader header_{};
  int depth_ = 0;                 // of the level added last
  LevelView before_;              // that level
  LevelView two_before_;          // the one above it
  NodeId root_children_[2] = {};  // as a level's `children`, for the one node of level 0
  std::vector<NodeId> suffixes_;  // of before_'s nodes: where in two_before_, or kNoNode
};

// Writes to a temporary file beside `path`, flushes it to disk, then renames, so that a reader sees
// the old file or the whole new one. Throws FileError, std::invalid_argument.
void write_store(const StoreData& data, const std::string& path, ValueCoding coding);

struct EncodeLimits {
  std::size_t memory_bytes = std::size_t{1} << 30;  // of the process beyond what it has; >= 64 MiB
  // Called now and then with the level, its nodes done and its nodes; may throw to interrupt.
  std::function<void(int level, std::uint64_t nodes_done, std::uint64_t nodes)> progress = {};
};

// The same from levels on disk (see level_files.h): level n at `prefix` + n, n = 1 .. order.
//
// Scratch files lie beside them and are named `prefix` + "encoder-..." (one file system with
// `destination`); none is left after success. After an error, an interruption or a crash a second
// call goes on with the level at hand, if levels and coding are the same as before, else it begins
// anew. The levels are left alone.
// Throws FileError, FormatError, std::invalid_argument, and what limits.progress throws.
void write_store_from_levels(const std::string& prefix, int order, std::int64_t root_count,
                             const std::string& destination, ValueCoding coding,
                             const EncodeLimits& limits);

// The bytes write_store would write, for tests and fuzzers.
std::vector<std::byte> serialize_store(const StoreData& data, ValueCoding coding);

}  // namespace dart
