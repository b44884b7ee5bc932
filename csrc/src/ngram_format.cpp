#include "dart/ngram_format.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <utility>

#include "dart/errors.h"

namespace dart {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the n-gram file is little-endian and is used in place");

using Bytes = std::span<const std::byte>;

constexpr std::uint64_t padded(std::uint64_t size) { return (size + 7) / 8 * 8; }

std::uint64_t mix(std::uint64_t state, std::uint64_t word) {
  state = (state ^ word) * 0x9E3779B97F4A7C15ULL;
  return state ^ (state >> 29);
}

std::uint64_t load_word(const std::byte* bytes, std::size_t count) {
  std::uint64_t word = 0;
  std::memcpy(&word, bytes, count);
  return word;
}

// Checksum of `bytes` followed by the zeros that pad them to a multiple of 8.
std::uint64_t padded_checksum(Bytes bytes) {
  std::uint64_t state = 0x243F6A8885A308D3ULL ^ padded(bytes.size());
  std::size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) state = mix(state, load_word(bytes.data() + at, 8));
  if (at < bytes.size()) state = mix(state, load_word(bytes.data() + at, bytes.size() - at));
  return state;
}

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

FileHeader make_header(const StoreData& data) {
  if (data.levels.empty() || data.levels.size() > kMaxOrder) {
    throw std::invalid_argument("a store has 1 to 8 levels");
  }
  FileHeader header{};
  std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
  header.version = kFormatVersion;
  header.endian_mark = kEndianMark;
  header.order = static_cast<std::uint32_t>(data.levels.size());
  header.root_count = data.root_count;
  for (std::size_t i = 0; i < data.levels.size(); ++i) {
    const LevelData& level = data.levels[i];
    const bool is_last = i + 1 == data.levels.size();
    const std::size_t nodes = level.tokens.size();
    if (nodes > kMaxLevelNodes || level.counts.size() != nodes ||
        level.children.size() != (is_last ? 0 : nodes + 1)) {
      throw std::invalid_argument("level arrays do not fit each other");
    }
    header.levels[i].node_count = nodes;
    for (const Token token : level.tokens) {
      header.vocab_size = std::max(header.vocab_size, static_cast<std::uint64_t>(token) + 1);
    }
    header.levels[i].tokens_checksum = padded_checksum(bytes_of(level.tokens));
    header.levels[i].counts_checksum = padded_checksum(bytes_of(level.counts));
    if (!is_last) header.levels[i].children_checksum = padded_checksum(bytes_of(level.children));
  }
  lay_out(header);
  header.header_checksum = header_checksum(header);
  return header;
}

// Calls `emit` with each piece of the file in order, padding included.
void emit_store(const StoreData& data, const std::function<void(Bytes)>& emit) {
  const FileHeader header = make_header(data);
  const std::byte zeros[8] = {};
  emit(std::as_bytes(std::span<const FileHeader>(&header, 1)));
  for (const LevelData& level : data.levels) {
    for (const Bytes section :
         {bytes_of(level.tokens), bytes_of(level.counts), bytes_of(level.children)}) {
      emit(section);
      emit(Bytes(zeros, padded(section.size()) - section.size()));
    }
  }
}

// A temporary file that is removed unless it has been renamed to its destination.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& destination) : destination_(destination) {
    const std::string stem = destination + ".tmp-" + std::to_string(::getpid()) + "-";
    // Another thread or a crashed run with this process id may own a name: take the next one.
    for (int attempt = 0; attempt < 100 && descriptor_ < 0; ++attempt) {
      path_ = stem + std::to_string(attempt);
      descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (descriptor_ < 0 && errno != EEXIST) break;
    }
    if (descriptor_ < 0) {
      path_.clear();
      fail("cannot be created");
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  void write(Bytes bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("cannot be written");
      bytes = bytes.subspan(static_cast<std::size_t>(written));
    }
  }

  void commit() {
    if (::fsync(descriptor_) != 0) fail("cannot be flushed to disk");
    if (::close(std::exchange(descriptor_, -1)) != 0) fail("cannot be closed");
    if (::rename(path_.c_str(), destination_.c_str()) != 0) fail("cannot be put in place");
    path_.clear();
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw FileError(destination_, what + " (" + std::strerror(errno) + ")",
                    "a path in an existing folder with write permission and free space",
                    "check the folder, its permissions and the disk, or give another destination");
  }

  std::string destination_;
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace

std::uint64_t checksum(std::span<const std::byte> bytes) { return padded_checksum(bytes); }

std::uint64_t header_checksum(FileHeader header) {
  header.header_checksum = 0;
  return checksum(std::as_bytes(std::span<const FileHeader>(&header, 1)));
}

void lay_out(FileHeader& header) {
  std::uint64_t at = sizeof(FileHeader);
  for (std::uint32_t i = 0; i < header.order; ++i) {
    LevelRecord& level = header.levels[i];
    level.tokens_offset = at;
    at += padded(level.node_count * sizeof(Token));
    level.counts_offset = at;
    at += padded(level.node_count * sizeof(std::uint32_t));
    if (i + 1 < header.order) {
      level.children_offset = at;
      at += padded((level.node_count + 1) * sizeof(NodeId));
    }
  }
  header.file_bytes = at;
}

void write_store(const StoreData& data, const std::string& path) {
  TemporaryFile file(path);
  emit_store(data, [&file](Bytes bytes) { file.write(bytes); });
  file.commit();
}

std::vector<std::byte> serialize_store(const StoreData& data) {
  std::vector<std::byte> image;
  emit_store(data,
             [&image](Bytes bytes) { image.insert(image.end(), bytes.begin(), bytes.end()); });
  return image;
}

}  // namespace dart
