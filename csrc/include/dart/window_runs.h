// Sorted windows on disk: from the runs that NgramBuilder writes to the levels of a store.
//
// A run is a file of Window records in ascending order. A window may come in several records, in
// one run and in several; their counts add up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dart/progress.h"
#include "dart/store_data.h"

namespace dart {

// First tokens begin .. end - 1, up to 2^31.
struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t end = std::int64_t{1} << 31;
};

// Makes one run of several. Their buffers take `memory_bytes` together. Throws FileError, and what
// `progress` throws, as the others here do.
void combine_runs(const std::vector<std::string>& runs, int order, const std::string& destination,
                  std::size_t memory_bytes, const Progress& progress);

// Merges the windows that begin with a token of the range, and writes the levels `prefix` + "1" ..
// `prefix` + order, as LevelFiles, the last one first. Of the n-grams of length i + 1 those that
// occur min_counts[i] times are kept. Throws FileError; std::invalid_argument as TrieWriter.
void merge_runs(const std::vector<std::string>& runs, int order, TokenRange range,
                std::span<const Count> min_counts, const std::string& prefix,
                std::size_t memory_bytes, const Progress& progress);

// Joins the level `level` (from 1) of parts into the LevelFiles `prefix` + level. Ranges of first
// tokens ascend from part to part; the levels below must still be there. Throws FileError.
void join_level(const std::vector<std::string>& parts, int level, int order,
                const std::string& prefix, const Progress& progress);

}  // namespace dart
