#include "dart/lookup_timing.h"

#include <chrono>
#include <stdexcept>
#include <utility>

namespace dart {
namespace {

using Clock = std::chrono::steady_clock;

// What score() does for a search, up to the contexts below a length; returns a number that depends
// on every answer.
std::size_t match_below(int lengths, const NgramStore& store, const State& state,
                        std::span<const Match> tokens, std::vector<Match>& shorter,
                        std::vector<Match>& matches) {
  std::size_t found = 0;
  std::size_t total = 0;
  for (int length = 0; length < lengths; ++length) {
    shorter.swap(matches);
    found = store.match_children(state, length, tokens, std::span(shorter).first(found), matches);
    total += found;
  }
  return total;
}

}  // namespace

std::vector<LookupTime> time_lookups(const NgramStore& store, std::span<const Token> contexts,
                                     std::size_t context_size, std::span<const Token> candidates,
                                     std::size_t candidate_count, int rounds) {
  const std::size_t count = candidate_count == 0 ? 0 : candidates.size() / candidate_count;
  if (rounds < 1 || contexts.size() != count * context_size ||
      candidates.size() != count * candidate_count) {
    throw std::invalid_argument("contexts and candidates differ in rows, or rounds is below 1");
  }
  std::vector<LookupTime> times;
  times.reserve(count);
  std::vector<Match> tokens(candidate_count);
  std::vector<Match> shorter(candidate_count);
  std::vector<Match> matches(candidate_count);
  // Read after the loop, so that no lookup is left out for having no use.
  volatile std::size_t found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const State state = store.state_after(contexts.subspan(i * context_size, context_size));
    for (std::uint32_t k = 0; k < tokens.size(); ++k) {
      tokens[k] = NgramStore::wanted(k, candidates[i * candidate_count + k]);
    }
    const auto nanoseconds = [&](int lengths, int times_over) {
      const Clock::time_point start = Clock::now();
      for (int round = 0; round < times_over; ++round) {
        found = found + match_below(lengths, store, state, tokens, shorter, matches);
      }
      return std::chrono::duration<double, std::nano>(Clock::now() - start).count() / times_over;
    };
    // In this order: the first one must find the caches as another context has left them.
    const double first = nanoseconds(store.order(), 1);
    const double repeated = nanoseconds(store.order(), rounds);
    times.push_back({first, repeated, nanoseconds(1, rounds)});
  }
  return times;
}

}  // namespace dart
