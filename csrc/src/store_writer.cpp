// The ways to a whole store file: from memory, and from levels on disk.
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "dart/errors.h"
#include "dart/ngram_encoder.h"
#include "dart/temporary_file.h"

namespace dart {
namespace {

void encode(const StoreData& data, ValueCoding coding, WritableBytes& bytes) {
  StoreEncoder encoder(static_cast<int>(data.levels.size()), data.root_count, coding, bytes, "",
                       {});
  for (const LevelData& level : data.levels) encoder.add_level(LevelView(level));
  encoder.finish();
}

// What the encoding of levels on disk was asked for and how far it is.
struct Checkpoint {
  struct Column {
    std::uint64_t bytes;
    std::int64_t changed;  // in nanoseconds
  };
  std::uint64_t version = 1;
  std::uint64_t bits = 0;
  std::uint64_t order = 0;
  std::uint64_t is_exact = 0;
  std::int64_t root_count = 0;
  std::array<std::array<Column, 3>, kMaxOrder> columns{};
  StoreEncoder::State state{};  // all 0 before the first level
  std::uint64_t checksum = 0;   // of all before

  std::span<const std::byte> bytes() const {
    return std::as_bytes(std::span<const Checkpoint>(this, 1));
  }
  std::uint64_t expected_checksum() const {
    return dart::checksum(bytes().first(sizeof(Checkpoint) - sizeof(checksum)));
  }
  // Whether the work is the same; it may be at another place.
  bool fits(const Checkpoint& other) const {
    return std::memcmp(this, &other, offsetof(Checkpoint, state)) == 0;
  }
};
static_assert(std::has_unique_object_representations_v<Checkpoint>);

Checkpoint::Column examine(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return {};
  return {static_cast<std::uint64_t>(status.st_size),
          std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

// Names of the files that are kept between two calls.
struct ScratchPaths {
  explicit ScratchPaths(const std::string& prefix)
      : columns(prefix + "encoder-"), store(columns + "store"), state(columns + "state") {}

  void remove_all() const {
    std::error_code ignored;
    for (const char* name : {"state", "state.new", "store", "codes", "suffixes-0", "suffixes-1"}) {
      std::filesystem::remove(columns + name, ignored);
    }
  }

  std::string columns;  // see StoreEncoder
  std::string store;
  std::string state;
};

bool load(const std::string& path, Checkpoint& checkpoint) {
  std::error_code error;
  if (std::filesystem::file_size(path, error) != sizeof(Checkpoint) || error) return false;
  const auto bytes = std::as_writable_bytes(std::span<Checkpoint>(&checkpoint, 1));
  if (SequentialFile(path).read(bytes) != bytes.size()) return false;
  return checkpoint.checksum == checkpoint.expected_checksum();
}

void save(const std::string& path, Checkpoint& checkpoint) {
  checkpoint.checksum = checkpoint.expected_checksum();
  WorkFile file(path + ".new", path, WorkFile::Mode::kOpenOrNew);
  file.resize(0);
  file.write_at(0, checkpoint.bytes());
  file.sync();
  file.close_as(path);
}

}  // namespace

void write_store(const StoreData& data, const std::string& path, ValueCoding coding) {
  TemporaryFile file(path);
  encode(data, coding, file.file());
  file.commit();
}

std::vector<std::byte> serialize_store(const StoreData& data, ValueCoding coding) {
  MemoryBytes bytes;
  encode(data, coding, bytes);
  return bytes.take();
}

void write_store_from_levels(const std::string& prefix, int order, std::int64_t root_count,
                             const std::string& destination, ValueCoding coding,
                             const EncodeLimits& limits) {
  const ScratchPaths paths(prefix);
  WorkFile file(paths.store, destination, WorkFile::Mode::kOpenOrNew);
  const std::uint64_t left = file.size();
  StoreEncoder encoder(order, root_count, coding, file, paths.columns, limits);

  Checkpoint now;
  now.bits = static_cast<std::uint64_t>(coding.bits);
  now.order = static_cast<std::uint64_t>(order);
  now.is_exact = coding.kind == ValueKind::kExact ? 1 : 0;
  now.root_count = root_count;
  std::vector<LevelColumns> levels(1);  // level 0 has none
  for (int depth = 1; depth <= order; ++depth) {
    const std::string name = prefix + std::to_string(depth);
    const LevelPaths level(name);
    (void)LevelFiles(name, depth == order);  // checks that the columns are of a length
    levels.emplace_back(level);
    now.columns[static_cast<std::size_t>(depth - 1)] = {
        examine(level.tokens), examine(level.counts), examine(level.children)};
  }
  Checkpoint before;
  if (load(paths.state, before) && before.fits(now) && left >= before.state.header.file_bytes) {
    now = before;
    const auto depth = static_cast<std::size_t>(now.state.depth);
    encoder.restore(now.state, levels[depth - 1], levels[depth]);
  }
  for (std::size_t depth = now.state.depth + 1; depth < levels.size(); ++depth) {
    encoder.add_level(levels[depth]);
    encoder.sync_scratch();
    file.sync();
    now.state = encoder.state();
    save(paths.state, now);
  }
  encoder.finish();
  file.sync();
  file.close_as(destination);
  paths.remove_all();
}

}  // namespace dart
