// How long one context with its candidates takes, without a language's binding around it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "dart/ngram_store.h"

namespace dart {

// Nanoseconds.
struct LookupTime {
  double first;     // the context not looked up before, so mostly not in the processor's cache
  double repeated;  // once more, the mean of `rounds`
  double empty;     // what of that finds the candidates after the empty context
};

// Times the matching of candidates with a context of every length, for each of the rows of
// `contexts` [n, context_size] and `candidates` [n, candidate_count] (ascending, distinct, at least
// 0). The context's state is found before the clock starts. Throws std::invalid_argument for sizes
// that do not fit each other and rounds below 1.
std::vector<LookupTime> time_lookups(const NgramStore& store, std::span<const Token> contexts,
                                     std::size_t context_size, std::span<const Token> candidates,
                                     std::size_t candidate_count, int rounds);

}  // namespace dart
