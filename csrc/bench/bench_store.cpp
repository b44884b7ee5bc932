// How long a store's answers take: bench_store FILE [ROUNDS]. Not a test; nothing runs it.
//
// Walks random n-grams of the store, so that contexts are as common as in what was counted. For
// every context: all lengths matched against 25 candidates, half of them followers of it, half
// random ones. Medians over contexts; each is timed over ROUNDS repetitions while it is in the
// processor's cache, and once before, when it is not.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <vector>

#include "dart/ngram_store.h"

namespace {

using dart::Match;
using dart::State;
using dart::Token;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kCandidates = 25;
constexpr int kContexts = 4000;

double nanoseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

// All lengths of one context; returns a number that depends on every answer.
std::size_t match_all(const dart::NgramStore& store, const State& state,
                      const std::vector<Token>& tokens, std::vector<Match>& shorter,
                      std::vector<Match>& matches) {
  std::size_t found = 0;
  std::size_t total = 0;
  for (int length = 0; length < store.order(); ++length) {
    shorter.swap(matches);
    found = store.match_children(state, length, tokens, std::span(shorter).first(found), matches);
    total += found;
  }
  return total;
}

double quantile(std::vector<double> values, double share) {
  const auto at = static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: bench_store FILE [ROUNDS]\n");
    return 2;
  }
  const auto store = dart::NgramStore::open(arguments[1]);
  const int rounds = count > 2 ? std::atoi(arguments[2]) : 100;
  std::mt19937 random(1);
  std::vector<Token> vocabulary(store.vocab_size());
  for (std::size_t i = 0; i < vocabulary.size(); ++i) vocabulary[i] = static_cast<Token>(i);
  std::vector<Match> followers(vocabulary.size());
  std::vector<Match> shorter(vocabulary.size());
  std::vector<Match> matches(vocabulary.size());
  std::vector<double> cold;
  std::vector<double> warm;
  std::vector<double> advanced;
  State state = store.empty_state();
  std::size_t checksum = 0;
  for (int i = 0; i < kContexts; ++i) {
    // The children of the longest context that has any; the root's at first.
    std::size_t found = 0;
    std::vector<Match> longest;
    for (int length = 0; length < store.order(); ++length) {
      shorter.swap(followers);
      found = store.match_children(state, length, vocabulary, std::span(shorter).first(found),
                                   followers);
      if (found > 0) longest.assign(followers.begin(), followers.begin() + found);
    }
    std::set<Token> chosen;
    for (std::size_t k = 0; k < kCandidates / 2; ++k) {
      chosen.insert(vocabulary[longest[random() % longest.size()].candidate]);
    }
    while (chosen.size() < std::min(kCandidates, vocabulary.size())) {
      chosen.insert(vocabulary[random() % vocabulary.size()]);
    }
    const std::vector<Token> tokens(chosen.begin(), chosen.end());
    auto start = Clock::now();
    checksum += match_all(store, state, tokens, shorter, matches);
    cold.push_back(nanoseconds_since(start));
    start = Clock::now();
    for (int round = 0; round < rounds; ++round) {
      checksum += match_all(store, state, tokens, shorter, matches);
    }
    warm.push_back(nanoseconds_since(start) / rounds);
    const Token next = i % 50 == 0 ? vocabulary[random() % vocabulary.size()]
                                   : vocabulary[longest[random() % longest.size()].candidate];
    start = Clock::now();
    for (int round = 0; round < rounds; ++round) checksum += store.advance(state, next).nodes[0];
    advanced.push_back(nanoseconds_since(start) / rounds);
    state = store.advance(state, next);
  }
  std::printf(
      "%llu nodes, order %d; context with %zu candidates: median %.0f ns, p99 %.0f ns; "
      "first time %.0f, %.0f ns; advance %.0f, %.0f ns (%zu)\n",
      static_cast<unsigned long long>(store.num_nodes()), store.order(), kCandidates,
      quantile(warm, 0.5), quantile(warm, 0.99), quantile(cold, 0.5), quantile(cold, 0.99),
      quantile(advanced, 0.5), quantile(advanced, 0.99), checksum % 10);
}
