// Context-based remapping: numbers the nodes of a level among the children of shorter contexts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dart/column.h"
#include "dart/store_data.h"

namespace dart {

// Takes the runs of siblings of a level in order. Of each run there is the place of its context's
// suffix (the context without its first token), two levels up. A node's code is the place of its
// token among the children of that suffix; that child is the suffix of the node's own n-gram.
//
// Suffixes ascend only among n-grams with the same first token. So that levels on disk are not read
// here and there, runs are collected and looked up in the order of their suffixes.
// source: Pibiri and Venturini, arXiv 1806.09447.
class Remapper {
 public:
  // `starts`: where the children of the suffixes begin, as a level's `children`; `tokens`: of
  // these. Results for `nodes` go to columns at the paths (see ScratchColumn), suffixes only if
  // `has_suffixes`.
  // Memory: about memory_bytes, or 20 bytes for each token of the longest run.
  Remapper(const Column<NodeId>& starts, const Column<Token>& tokens, std::size_t memory_bytes,
           std::uint64_t nodes, const std::string& codes_path, const std::string& suffixes_path,
           bool has_suffixes);

  // The siblings begin .. end - 1, whose context has its suffix at `suffix` or, kNoNode, has none.
  void add(NodeId suffix, ColumnReader<Token>& tokens, NodeId begin, NodeId end);
  // After all.
  void finish() { flush(); }

  // Whether every node has a code.
  bool is_closed() const { return is_closed_; }
  // What the codes count up to if those of a run follow on those of the run before.
  std::uint64_t universe() const { return universe_; }
  Column<std::uint32_t> codes() const { return codes_.column(); }
  ScratchColumn<NodeId>& suffixes() { return suffixes_; }

 private:
  struct Run {
    NodeId suffix;  // from locate() on: the first of its children
    std::uint32_t children;
    std::uint32_t begin;  // places in the arrays below
    std::uint32_t end;
  };
  void locate();
  void look_up(const Run& run);
  void flush();

  bool is_on_disk_;
  bool has_suffixes_;
  std::size_t capacity_;
  ColumnReader<NodeId> starts_;
  ColumnReader<Token> level_;
  std::vector<Run> runs_;
  std::vector<Token> tokens_;
  std::vector<std::uint32_t> found_codes_;
  std::vector<NodeId> found_suffixes_;
  ScratchColumn<std::uint32_t> codes_;
  ScratchColumn<NodeId> suffixes_;
  bool is_closed_ = true;
  std::uint64_t universe_ = 0;
};

}  // namespace dart
