#include "dart/window_runs.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <utility>

#include "dart/level_files.h"
#include "dart/mapped_file.h"
#include "dart/progress.h"
#include "dart/record_file.h"
#include "dart/trie_writer.h"
#include "dart/window.h"

namespace dart {
namespace {

constexpr std::size_t kSmallestBuffer = std::size_t{1} << 12;
constexpr std::size_t kLargestBuffer = std::size_t{1} << 22;

std::size_t buffer_bytes(std::size_t memory_bytes, std::size_t runs) {
  return std::clamp(memory_bytes / std::max<std::size_t>(runs, 1), kSmallestBuffer, kLargestBuffer);
}

// A reader of the records that begin with a token of the range.
template <int Order>
RecordReader<Window<Order>> reader_of(const std::string& path, TokenRange range,
                                      std::size_t buffer) {
  const MappedFile file(path, "a run of unfinished work",
                        "remove the folder of unfinished work and begin again");
  const std::span windows(reinterpret_cast<const Window<Order>*>(file.bytes().data()),
                          file.bytes().size() / sizeof(Window<Order>));
  const auto place_of = [&windows](std::int64_t token) {
    const auto at = std::ranges::partition_point(
        windows, [token](const Window<Order>& window) { return window.tokens[0] < token; });
    return static_cast<std::uint64_t>(at - windows.begin());
  };
  return RecordReader<Window<Order>>(path, buffer, place_of(range.begin), place_of(range.end));
}

template <int Order, typename Visit>
void merge_windows(const std::vector<std::string>& runs, TokenRange range, std::size_t memory_bytes,
                   const Progress& progress, const Visit& visit) {
  std::vector<RecordReader<Window<Order>>> readers;
  readers.reserve(runs.size());
  std::uint64_t records = 0;
  for (const std::string& run : runs) {
    readers.push_back(reader_of<Order>(run, range, buffer_bytes(memory_bytes, runs.size())));
    records += readers.back().left();
  }
  Steps steps(progress, "merging", records);
  merge(readers, [&](const Window<Order>& window) {
    visit(window);
    steps.add_one();
  });
}

std::string level_prefix(const std::string& prefix, int level) {
  return prefix + std::to_string(level);
}

// Appends the values of one column to another, each plus `shift`.
template <typename Value>
void append_column(const std::string& source, std::uint64_t first, Value shift,
                   RecordWriter<Value>& destination, Steps& steps) {
  for (RecordReader<Value> reader(source, kRecordBufferBytes, first); !reader.is_at_end();
       reader.pop()) {
    destination.add(reader.front() + shift);
    steps.add_one();
  }
}

NodeId node_count(const std::string& level) {
  return std::filesystem::file_size(LevelPaths(level).tokens) / sizeof(Token);
}

}  // namespace

void combine_runs(const std::vector<std::string>& runs, int order, const std::string& destination,
                  std::size_t memory_bytes, const Progress& progress) {
  with_order(order, [&]<int Order>() {
    RecordWriter<Window<Order>> writer(destination);
    Window<Order> at{};
    Count count = 0;
    const auto write = [&] {
      for_each_piece(count, [&](std::uint32_t piece) {
        at.count = piece;
        writer.add(at);
      });
    };
    merge_windows<Order>(runs, {}, memory_bytes, progress, [&](const Window<Order>& window) {
      if (at.tokens != window.tokens) {
        write();
        at = window;
        count = 0;
      }
      count += window.count;
    });
    write();
    writer.commit();
  });
}

void merge_runs(const std::vector<std::string>& runs, int order, TokenRange range,
                std::span<const Count> min_counts, const std::string& prefix,
                std::size_t memory_bytes, const Progress& progress) {
  with_order(order, [&]<int Order>() {
    std::deque<LevelWriter> levels;
    for (int n = 1; n <= Order; ++n) levels.emplace_back(level_prefix(prefix, n), n == Order);
    TrieWriter writer(levels, min_counts);
    merge_windows<Order>(runs, range, memory_bytes, progress, [&](const Window<Order>& window) {
      writer.add(window.tokens, window.count);
    });
    writer.finish();
    std::for_each(levels.rbegin(), levels.rend(), [](LevelWriter& level) { level.commit(); });
  });
}

void join_level(const std::vector<std::string>& parts, int level, int order,
                const std::string& prefix, const Progress& progress) {
  const bool is_last = level == order;
  const LevelPaths paths(level_prefix(prefix, level));
  std::uint64_t nodes = 0;
  for (const std::string& part : parts) nodes += node_count(level_prefix(part, level));
  Steps steps(progress, "joining", (is_last ? 2 : 3) * nodes);
  RecordWriter<Token> tokens(paths.tokens);
  RecordWriter<Count> counts(paths.counts);
  RecordWriter<NodeId> children(paths.children);
  if (!is_last) children.add(0);
  NodeId shift = 0;  // nodes of the next level in the parts before
  for (const std::string& part : parts) {
    const LevelPaths source(level_prefix(part, level));
    append_column<Token>(source.tokens, 0, 0, tokens, steps);
    append_column<Count>(source.counts, 0, 0, counts, steps);
    if (is_last) continue;
    append_column<NodeId>(source.children, 1, shift, children, steps);
    shift += node_count(level_prefix(part, level + 1));
  }
  counts.commit();
  children.commit();
  tokens.commit();
}

}  // namespace dart
