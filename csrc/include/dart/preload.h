// Reading a mapped file ahead of those who will need it.
#pragma once

#include <cstdint>
#include <memory>

#include "dart/mapped_file.h"

namespace dart {

// Has a thread of its own read the file's first `limit` bytes, from the start, and returns at once.
// The thread ends early when nobody else has the file any more. Where there can be no thread
// nothing happens: the file is then read when it is needed, and what is beyond the limit always is,
// page by page.
void preload(const std::shared_ptr<const MappedFile>& file, std::uint64_t limit);

// Half of this machine's memory, in bytes: more of a file would drive out what it just read.
std::uint64_t preload_limit();

}  // namespace dart
