#include "dart/preload.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <system_error>
#include <thread>

namespace dart {
namespace {

// Read at a time. While it is, other threads cannot change the process's mappings.
constexpr std::size_t kStep = std::size_t{2} << 20;

void load(const std::weak_ptr<const MappedFile>& file, std::size_t size) {
  for (std::size_t at = 0; at < size; at += kStep) {
    const std::shared_ptr<const MappedFile> mapping = file.lock();
    if (mapping == nullptr) return;
    mapping->load(at, std::min(kStep, size - at));
  }
}

}  // namespace

void preload(const std::shared_ptr<const MappedFile>& file, std::uint64_t limit) {
  std::size_t size = file->bytes().size();
  if (limit < size) size = static_cast<std::size_t>(limit) / kStep * kStep;
  file->prefer_huge_pages(size);
  file->expect_scattered_reads(size);
  try {
    // Nobody waits for it: not the owner of the file, nor a process forked off, which has no such
    // thread.
    std::thread(load, std::weak_ptr(file), size).detach();
  } catch (const std::system_error&) {
    return;
  }
}

std::uint64_t preload_limit() {
  const auto pages = ::sysconf(_SC_PHYS_PAGES);
  const auto page_size = ::sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page_size <= 0) return 0;
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_size) / 2;
}

}  // namespace dart
