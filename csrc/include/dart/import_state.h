// How far an import is, and what it has left on disk for its next step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dart {

// Sorted files of records, see external_sort.h.
struct Runs {
  std::vector<std::string> files;
  std::uint64_t count = 0;  // records
};

// The importer goes down level by level, in two steps each; see trie_levels.h.
struct ImportState {
  std::string source;    // what is imported: path, size and time of the last change
  int depth = 0;         // of the nodes at hand; the root's is 0; beyond order: all is done
  bool is_read = false;  // their records have been read, their children are to be sorted
  std::int64_t root_count = 0;
  std::uint64_t nodes = 1;    // at this depth
  std::uint64_t reached = 1;  // nodes whose place is known, the root included
  Runs places;                // of the nodes at hand, before their records are read
  Runs children;              // theirs, afterwards
  Runs counts;                // likewise

  // The runs lie beside the file, wherever it is. None where there is no such file, or one that
  // cannot be understood.
  static std::optional<ImportState> load(const std::string& path);
  // The file changes at once or not at all. Throws FileError.
  void save(const std::string& path) const;
};

}  // namespace dart
