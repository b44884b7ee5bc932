// Imports arbitrary bytes as an upstream .trie; what is accepted must make a sound store.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "dart/errors.h"
#include "dart/ngram_encoder.h"
#include "dart/ngram_store.h"
#include "dart/trie_import.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  dart::StoreData imported;
  try {
    imported = dart::parse_trie(std::as_bytes(std::span(data, size)), "fuzz");
  } catch (const dart::FormatError&) {
    return 0;
  }
  const auto wide = dart::parse_trie(std::as_bytes(std::span(data, size)), "fuzz", true);
  if (dart::serialize_store(wide, dart::ValueCoding::exact()) !=
      dart::serialize_store(imported, dart::ValueCoding::exact())) {
    std::abort();
  }
  // Outside the try: a store made from an accepted file must open and verify.
  for (const auto coding : {dart::ValueCoding::exact(), dart::ValueCoding::quantised(3)}) {
    const auto image = dart::serialize_store(imported, coding);
    const auto store = dart::NgramStore::view(image, "fuzz");
    store.verify();
    if (store.num_nodes() * 36 + 40 != size) std::abort();  // 36 bytes a node, 40 for the root
  }
  return 0;
}
