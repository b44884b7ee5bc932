// The n-grams of one length on disk, as three plain columns: what builder and importer leave for
// the encoder when there are too many for memory.
#pragma once

#include <string>

#include "dart/mapped_file.h"
#include "dart/record_file.h"
#include "dart/store_data.h"

namespace dart {

// Where the columns of a level lie: `prefix`.tokens (Token), .counts (Count), .children (NodeId).
struct LevelPaths {
  explicit LevelPaths(const std::string& prefix)
      : tokens(prefix + ".tokens"), counts(prefix + ".counts"), children(prefix + ".children") {}

  std::string tokens;
  std::string counts;
  std::string children;  // one entry more than nodes, none in the last level; see LevelData
};

// Writes a level node by node, in the order of the level.
class LevelWriter {
 public:
  LevelWriter(const std::string& prefix, bool is_last);

  // `children_end`: nodes of the next level up to the last child of this one; 0 in the last level.
  void add(Token token, Count count, NodeId children_end);
  std::uint64_t count() const { return tokens_.count(); }
  // The files appear under their names.
  void commit();

 private:
  bool is_last_;
  RecordWriter<Token> tokens_;
  RecordWriter<Count> counts_;
  RecordWriter<NodeId> children_;
};

// A level's columns, mapped.
class LevelFiles {
 public:
  // Throws FileError, or FormatError where the columns do not fit each other in length.
  LevelFiles(const std::string& prefix, bool is_last);

  LevelView view() const;
  // Gives the memory of pages read so far back; they are read again when they are needed.
  void release() const;

 private:
  MappedFile tokens_;
  MappedFile counts_;
  MappedFile children_;
};

}  // namespace dart
