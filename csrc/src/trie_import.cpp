#include "dart/trie_import.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "dart/byte_stream.h"
#include "dart/errors.h"
#include "dart/import_state.h"
#include "dart/trie_levels.h"
#include "dart/trie_reader.h"
#include "dart/work_folder.h"

namespace dart {
namespace {

// Bytes per node of an import in memory, at its peak, where nearly all nodes are of one level: the
// sorters' records and the columns; or the columns and what the encoder needs.
constexpr std::uint64_t kBytesInMemory = 64;
// Bytes per node on disk at the peak: the children of the last level and their places, beside the
// columns, see trie_levels.h; with ids of 64 bits.
constexpr std::uint64_t kBytesOnDisk = 40;
constexpr std::uint64_t kWideBytesOnDisk = 64;
// Of the memory, what is left to buffers, stacks and the allocator.
constexpr std::uint64_t kOtherShare = 4;

bool needs_wide_ids(const TrieReader& trie) {
  return trie.node_count() > std::numeric_limits<std::uint32_t>::max();
}

// Turns what single steps report into the progress of the whole import.
class ImportMeter {
 public:
  ImportMeter(const Progress& progress, const TrieReader& trie)
      : progress_(progress),
        order_(trie.order()),
        nodes_(static_cast<double>(trie.node_count())),
        total_(nodes_ * (kReading * order_ + kSorting + kEncoding)) {}

  void operator()(const ImportState& state, std::uint64_t done) const {
    if (!progress_ || state.depth > order_) return;
    const double before = nodes_ * kReading * std::max(state.depth - (state.is_read ? 0 : 1), 0) +
                          kSorting * static_cast<double>(state.reached);
    const double step = (state.is_read ? kSorting : kReading) * static_cast<double>(done);
    const std::string stage = state.is_read
                                  ? "sorting level " + level(std::min(state.depth + 1, order_))
                                  : "reading level " + level(std::max(state.depth, 1));
    progress_(stage, before + step, total_);
  }
  void encoding(int depth, std::uint64_t before, std::uint64_t done) const {
    if (!progress_) return;
    const double nodes = static_cast<double>(before + done);
    progress_("encoding level " + level(depth), total_ - kEncoding * (nodes_ - nodes), total_);
  }

 private:
  // What passing over a record, sorting and encoding a node take, relative to each other: measured.
  static constexpr double kReading = 0.3;
  static constexpr double kSorting = 1.0;
  static constexpr double kEncoding = 0.7;

  std::string level(int depth) const {
    return std::to_string(depth) + " of " + std::to_string(order_);
  }

  const Progress& progress_;
  int order_;
  double nodes_;
  double total_;
};

template <typename Id>
StoreData levels_in_memory(TrieReader& trie, const StepProgress& progress) {
  StoreData data;
  data.levels.resize(static_cast<std::size_t>(trie.order()));
  LevelStorage storage(data);
  ImportState state;
  constexpr std::size_t kUnbounded = std::numeric_limits<std::size_t>::max() / 4;
  TrieLevels<Id> levels(trie, storage, kUnbounded, state, progress);
  while (!levels.is_done()) levels.step();
  data.root_count = state.root_count;
  return data;
}

StoreData levels_in_memory(TrieReader& trie, bool has_wide_ids, const StepProgress& progress) {
  return has_wide_ids ? levels_in_memory<std::uint64_t>(trie, progress)
                      : levels_in_memory<std::uint32_t>(trie, progress);
}

// One line that changes with the file.
std::string identity(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return path;
#ifdef __APPLE__
  const timespec& changed = status.st_mtimespec;
#else
  const timespec& changed = status.st_mtim;
#endif
  std::error_code ignored;
  std::string name = std::filesystem::weakly_canonical(path, ignored).string();
  std::replace(name.begin(), name.end(), '\n', ' ');
  return name + " " + std::to_string(status.st_size) + " " + std::to_string(changed.tv_sec) + "." +
         std::to_string(changed.tv_nsec);
}

std::string gigabytes(std::uint64_t bytes) {
  const std::uint64_t tenths = (bytes + 99'999'999) / 100'000'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GB";
}

void check_space(const WorkFolder& folder, const TrieReader& trie, const std::string& destination) {
  const std::uint64_t need =
      trie.node_count() * (needs_wide_ids(trie) ? kWideBytesOnDisk : kBytesOnDisk);
  const std::uint64_t has = folder.bytes();
  const std::uint64_t free = folder.free_bytes();
  if (need <= has || need - has <= free) return;
  throw FileError(destination, "has a disk with " + gigabytes(free) + " free",
                  gigabytes(need - has) + " for the unfinished work",
                  "free some space, give a destination on another disk, or more memory");
}

// The state to begin with: that of an earlier import of the same file, or a new one.
ImportState take_up(const WorkFolder& folder, const std::string& source,
                    const ImportLimits& limits) {
  const auto tell = [&](const std::string& notice) {
    if (limits.notice) limits.notice(notice);
  };
  const auto found = ImportState::load(folder / "state");
  ImportState state;
  state.source = identity(source);
  if (!found) return state;
  if (found->source != state.source) {
    tell("discarding the unfinished import of another file (" + found->source + ")");
    return state;
  }
  tell("going on with the import in " + folder.path());
  return *found;
}

template <typename Id>
void levels_on_disk(TrieReader& trie, const WorkFolder& folder, ImportState& state,
                    std::uint64_t memory_bytes, const StepProgress& progress) {
  LevelStorage storage(folder / "");
  TrieLevels<Id> levels(trie, storage, memory_bytes - memory_bytes / kOtherShare, state, progress);
  const auto clean = [&] {
    std::vector<std::string> needed = levels.files();
    needed.push_back(folder / "state");
    for (const Runs* runs : {&state.places, &state.children, &state.counts}) {
      needed.insert(needed.end(), runs->files.begin(), runs->files.end());
    }
    for (int depth = 1; depth <= trie.order(); ++depth) {
      const LevelPaths paths(storage.level_prefix() + std::to_string(depth));
      needed.insert(needed.end(), {paths.tokens, paths.counts, paths.children});
    }
    folder.keep_only(needed);
  };
  if (levels.is_done()) return;  // the folder holds the encoder's files
  clean();
  while (!levels.is_done()) {
    levels.step();
    state.save(folder / "state");
    clean();
  }
}

void encode(const WorkFolder& folder, int order, const ImportState& state,
            const std::string& destination, ValueCoding coding, std::uint64_t memory_bytes,
            const ImportMeter& meter) {
  int level = 0;
  std::uint64_t before = 0;
  std::uint64_t nodes_of_level = 0;
  const auto progress = [&](int depth, std::uint64_t done, std::uint64_t nodes) {
    if (depth != level) before += std::exchange(nodes_of_level, nodes);
    level = depth;
    meter.encoding(depth, before, done);
  };
  write_store_from_levels(LevelStorage(folder / "").level_prefix(), order, state.root_count,
                          destination, coding, {static_cast<std::size_t>(memory_bytes), progress});
}

}  // namespace

StoreData parse_trie(std::span<const std::byte> bytes, const std::string& name, bool has_wide_ids) {
  ByteStream stream(bytes);
  TrieReader trie(stream, name);
  return levels_in_memory(trie, has_wide_ids || needs_wide_ids(trie),
                          [](const ImportState&, std::uint64_t) {});
}

void import_trie(const std::string& source, const std::string& destination, ValueCoding coding,
                 const ImportLimits& limits) {
  SequentialFile file(source, "an upstream .trie file", "check the path of the .trie file");
  ByteStream stream(file);
  TrieReader trie(stream, source);
  const ImportMeter meter(limits.progress, trie);
  if (trie.node_count() <= limits.memory_bytes / kBytesInMemory) {
    write_store(levels_in_memory(trie, needs_wide_ids(trie), meter), destination, coding);
    return;
  }
  WorkFolder folder(destination + ".import");
  ImportState state = take_up(folder, source, limits);
  check_space(folder, trie, destination);
  try {
    if (needs_wide_ids(trie)) {
      levels_on_disk<std::uint64_t>(trie, folder, state, limits.memory_bytes, meter);
    } else {
      levels_on_disk<std::uint32_t>(trie, folder, state, limits.memory_bytes, meter);
    }
    encode(folder, trie.order(), state, destination, coding, limits.memory_bytes, meter);
  } catch (const FormatError&) {
    folder.remove();  // it would go wrong again
    throw;
  }
  folder.remove();
}

}  // namespace dart
