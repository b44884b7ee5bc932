// Makes a store of an upstream `.trie` dump.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "dart/ngram_encoder.h"
#include "dart/progress.h"
#include "dart/store_data.h"

namespace dart {

struct ImportLimits {
  // What the import may add to the process's resident memory.
  std::uint64_t memory_bytes = std::uint64_t{4} << 30;
  Progress progress = {};
  // Told what happens to the unfinished work of an earlier import.
  std::function<void(const std::string& notice)> notice = {};
};

// Checks the whole file (sizes, ids, child lists against the records they name, one parent per
// node, depth, duplicates) and writes its n-grams as a store. Counts are kept exactly, except that
// one <= 0, which the original's pruning leaves behind, becomes 0 = treated as absent.
//
// A file whose n-grams do not fit the memory is taken apart on disk, in the folder `destination` +
// ".import", about its own size once more. After an error, an interruption or a crash a second call
// goes on from there; success removes the folder. `destination` appears whole or not at all.
// Throws FormatError, also for what the store cannot hold (order above 8, negative tokens),
// FileError, also where the disk is too small or another process imports to the same place, and
// what limits.progress throws.
void import_trie(const std::string& source, const std::string& destination, ValueCoding coding,
                 const ImportLimits& limits);

// The n-grams of a dump in memory, by the same steps; for tests and fuzzers.
// `has_wide_ids`: take the way of files with 2^32 nodes and more.
StoreData parse_trie(std::span<const std::byte> bytes, const std::string& name,
                     bool has_wide_ids = false);

}  // namespace dart
