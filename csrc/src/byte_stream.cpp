#include "dart/byte_stream.h"

#include <algorithm>

#include "dart/errors.h"

namespace dart {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

}  // namespace

ByteStream::ByteStream(SequentialFile& file)
    : size_(file.size()), left_behind_(size_), file_(&file) {
  buffer_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kBufferBytes, size_)));
}

void ByteStream::skip(std::uint64_t count) {
  if (count <= window_.size()) {
    window_ = window_.subspan(static_cast<std::size_t>(count));
    return;
  }
  left_behind_ -= count - window_.size();
  window_ = {};
  file_->skip_to(size_ - left_behind_);
}

void ByteStream::rewind() {
  if (file_ == nullptr) {
    window_ = memory_;
    return;
  }
  left_behind_ = size_;
  window_ = {};
  file_->skip_to(0);
}

void ByteStream::refill(std::size_t count) {
  const std::size_t kept = window_.size();
  std::copy(window_.begin(), window_.end(), buffer_.begin());
  const auto wanted =
      static_cast<std::size_t>(std::min<std::uint64_t>(buffer_.size() - kept, left_behind_));
  const std::size_t read = file_->read(std::span(buffer_).subspan(kept, wanted));
  if (read < wanted || kept + read < count) {
    throw FileError(file_->path(), "became shorter while it was read", "a file that stays",
                    "do not change the file, and begin again");
  }
  left_behind_ -= read;
  window_ = std::span<const std::byte>(buffer_).first(kept + read);
}

}  // namespace dart
