// The values of a level: chooses a codebook and writes the section.
#pragma once

#include <cstdint>
#include <memory>

#include "dart/column.h"
#include "dart/ngram_format.h"
#include "dart/pulse.h"

namespace dart {

class ValuesEncoder {
 public:
  virtual ~ValuesEncoder() = default;
  // Reads the level and returns the size of its codebook. Call once, before write().
  virtual std::uint64_t choose(Pulse& pulse) = 0;
  // Reads it again; the section begins at `offset`.
  virtual void write(WritableBytes& bytes, std::uint64_t offset, const ValuesLayout& layout,
                     Pulse& pulse) = 0;
};

// The distinct counts. Memory: about 64 bytes for each.
std::unique_ptr<ValuesEncoder> exact_values(const Column<Count>& counts);
// Probabilities of the nodes given their parents, of which there are the counts and children.
// Throws std::invalid_argument for bits out of range. Memory: 24 MiB.
std::unique_ptr<ValuesEncoder> quantised_values(int bits, const Column<Count>& counts,
                                                const Column<Count>& parent_counts,
                                                const Column<NodeId>& parent_children);
// None.
std::unique_ptr<ValuesEncoder> no_values();

}  // namespace dart
