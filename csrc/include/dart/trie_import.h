// Reads an upstream `.trie` dump.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "dart/ngram_encoder.h"
#include "dart/store_data.h"

namespace dart {

// Checks the whole file (sizes, ids, child lists against the records they name, one parent per
// node, depth, duplicates) and returns its n-grams. Counts are kept exactly, except that a count
// <= 0, which the original's pruning leaves behind, becomes 0 = treated as absent.
// Needs up to 40 bytes of memory per node besides the mapped file and the result.
// Throws FormatError, also for what the store cannot hold (order above 8, negative tokens).
// source: .trie layout as published with fvliang/DART.
StoreData parse_trie(std::span<const std::byte> bytes, const std::string& name);

// parse_trie of a file, written as a store. Throws FileError, FormatError.
void import_trie(const std::string& source, const std::string& destination, ValueCoding coding);

}  // namespace dart
