#include "dart/level_files.h"

#include "dart/errors.h"

namespace dart {
namespace {

constexpr const char* kRemedy = "remove the folder of unfinished work and begin again";

MappedFile map(const std::string& path) {
  return MappedFile(path, "a column of unfinished work", kRemedy);
}

template <typename Value>
std::span<const Value> values(const MappedFile& file) {
  return {reinterpret_cast<const Value*>(file.bytes().data()), file.bytes().size() / sizeof(Value)};
}

}  // namespace

LevelWriter::LevelWriter(const std::string& prefix, bool is_last)
    : is_last_(is_last),
      tokens_(LevelPaths(prefix).tokens),
      counts_(LevelPaths(prefix).counts),
      children_(LevelPaths(prefix).children) {
  if (!is_last_) children_.add(0);
}

void LevelWriter::add(Token token, Count count, NodeId children_end) {
  tokens_.add(token);
  counts_.add(count);
  if (!is_last_) children_.add(children_end);
}

void LevelWriter::commit() {
  counts_.commit();
  children_.commit();
  tokens_.commit();
}

LevelFiles::LevelFiles(const std::string& prefix, bool is_last)
    : tokens_(map(LevelPaths(prefix).tokens)),
      counts_(map(LevelPaths(prefix).counts)),
      children_(map(LevelPaths(prefix).children)) {
  const std::size_t nodes = values<Token>(tokens_).size();
  const std::size_t children = is_last ? 0 : nodes + 1;
  const auto check = [&](const std::string& path, const MappedFile& column, std::size_t bytes) {
    if (column.bytes().size() == bytes) return;
    throw FormatError(path, "size", std::to_string(column.bytes().size()) + " bytes",
                      std::to_string(bytes) + " bytes", kRemedy);
  };
  const LevelPaths paths(prefix);
  check(paths.tokens, tokens_, nodes * sizeof(Token));
  check(paths.counts, counts_, nodes * sizeof(Count));
  check(paths.children, children_, children * sizeof(NodeId));
}

LevelView LevelFiles::view() const {
  LevelView view;
  view.tokens = values<Token>(tokens_);
  view.counts = values<Count>(counts_);
  view.children = values<NodeId>(children_);
  return view;
}

void LevelFiles::release() const {
  tokens_.release();
  counts_.release();
  children_.release();
}

}  // namespace dart
