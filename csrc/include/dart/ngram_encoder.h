// Writes n-gram files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dart/column.h"
#include "dart/ngram_format.h"
#include "dart/pulse.h"
#include "dart/remapper.h"
#include "dart/store_data.h"
#include "dart/values_encoder.h"
#include "dart/writable_bytes.h"

namespace dart {

struct ValueCoding {
  ValueKind kind = ValueKind::kQuantised;
  int bits = 8;  // of quantised values, 2..8

  static ValueCoding exact() { return {ValueKind::kExact, 0}; }
  static ValueCoding quantised(int bits) { return {ValueKind::kQuantised, bits}; }
};

struct EncodeLimits {
  // Of the process beyond what it has; 64 MiB or more: with less it is slow and takes up to 32 all
  // the same. With exact counts, about 64 bytes for each distinct count of a level come on top.
  std::size_t memory_bytes = std::size_t{1} << 30;
  // Called many times a second with the level, its nodes done and its nodes, by the thread that
  // waits for the result; may throw to interrupt.
  LevelPulse::Report progress = {};
};

// Encodes level after level, each in a few passes from its first node to its last.
//
// A level is remapped where that is possible and smaller. It is possible where every n-gram's
// suffix (the n-gram without its first token) occurs, too: always in what was counted from text.
class StoreEncoder {
 public:
  // Where work stands after a level: all it takes to go on.
  struct State {
    FileHeader header;
    std::uint64_t depth;
  };

  // Writes to `bytes`, whatever they hold. Codes and the places of suffixes are kept in files
  // `scratch` + "codes" and `scratch` + "suffixes-0" and "-1", if it is empty in memory.
  // Throws std::invalid_argument for an order or a number of bits out of range.
  StoreEncoder(int order, std::int64_t root_count, ValueCoding coding, WritableBytes& bytes,
               std::string scratch, EncodeLimits limits);
  StoreEncoder(const StoreEncoder&) = delete;
  StoreEncoder& operator=(const StoreEncoder&) = delete;

  // The (n+1)-grams, after n levels. The arrays of the two levels added before must still be there.
  // Throws std::invalid_argument for arrays that do not fit each other or are out of order,
  // FileError, and what limits.progress throws.
  void add_level(const LevelColumns& level);
  // Writes the header. Throws std::logic_error before all levels.
  void finish();

  State state() const { return {header_, depth_}; }
  // Waits until what the next level needs of the scratch files is on the disk.
  void sync_scratch() { suffix_scratch_.sync(); }
  // Goes on from a state, with the bytes and scratch files of then; `two_before` and `before` are
  // the levels added last.
  void restore(const State& state, const LevelColumns& two_before, const LevelColumns& before);

 private:
  bool is_last() const { return depth_ == header_.order; }
  LevelRecord& record() { return header_.levels[depth_ - 1]; }
  Column<NodeId> parents() const;
  std::string scratch(const char* name) const { return scratch_.empty() ? "" : scratch_ + name; }
  std::string suffixes_path() const;  // of the level at hand
  std::unique_ptr<ValuesEncoder> values_of(const LevelColumns& level) const;
  void check_sizes(const LevelColumns& level) const;
  void check_children(const LevelColumns& level, Pulse& pulse);
  void check_tokens(const LevelColumns& level, Pulse& pulse);
  Remapper remap(const LevelColumns& level, Pulse& pulse) const;
  void write_sections(const LevelColumns& level, const Column<std::uint32_t>& codes,
                      ValuesEncoder& values, LevelPulse& progress);
  std::uint64_t checksum_at(std::uint64_t offset, std::uint64_t words, Pulse& pulse) const;

  ValueCoding coding_;
  WritableBytes& bytes_;
  std::string scratch_;
  EncodeLimits limits_;
  FileHeader header_{};           // file_bytes: so far
  std::uint64_t depth_ = 0;       // of the level added last
  LevelColumns before_;           // that level
  LevelColumns two_before_;       // the one above it
  NodeId root_children_[2] = {};  // as a level's `children`, for the one node of level 0
  // Of the nodes of before_: where in two_before_, or kNoNode. From level 2 on.
  ScratchColumn<NodeId> suffix_scratch_;
  Column<NodeId> suffixes_;
};

// Writes to a temporary file beside `path`, flushes it to disk, then renames, so that a reader sees
// the old file or the whole new one. Throws FileError, std::invalid_argument.
void write_store(const StoreData& data, const std::string& path, ValueCoding coding);

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
