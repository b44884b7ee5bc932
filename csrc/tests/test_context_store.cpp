#include <map>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "check.h"
#include "dart/context_store.h"
#include "dart/tree_search.h"

using dart::ContextMatch;
using dart::ContextState;
using dart::ContextStore;
using dart::Token;

namespace {

// Prevents a table that loses nodes or reads freed ones as it grows, token by token and in blocks.
void test_growth() {
  std::mt19937 random(1);
  std::vector<Token> text(5000);
  for (Token& token : text) token = static_cast<Token>(random() % 40);
  ContextStore single(3), blocks(3);
  for (const Token& token : text) single.append({&token, 1});
  blocks.append(std::span<const Token>(text).first(1));
  blocks.append(std::span<const Token>(text).subspan(1));
  CHECK(single.num_nodes() == blocks.num_nodes());
  CHECK(single.num_tokens() == text.size());

  std::map<std::pair<Token, Token>, int> pairs;
  for (std::size_t i = 0; i + 1 < text.size(); ++i) ++pairs[{text[i], text[i + 1]}];
  std::vector<Token> candidates(40);
  for (Token i = 0; i < 40; ++i) candidates[i] = i;
  std::vector<ContextMatch> matches;
  for (Token first = 0; first < 40; ++first) {
    int followed = 0;
    for (Token next = 0; next < 40; ++next) followed += pairs[{first, next}];
    single.match(single.advance(ContextState{}, first), candidates, matches);
    for (const ContextMatch& match : matches) {
      CHECK(match.candidate == match.token && match.length == 1);
      CHECK(match.probability ==
            static_cast<float>(pairs[{first, match.token}]) / static_cast<float>(followed + 1));
    }
  }
}

// Prevents a state that survives a token it does not know, and reads at the ends of short texts.
void test_states() {
  ContextStore store(8);
  std::vector<ContextMatch> matches;
  store.match(store.state(), {}, matches);
  CHECK(matches.empty());
  store.append(std::vector<Token>{1, 2, 3, 1, 2});
  store.match(store.state(), std::vector<Token>{4}, matches);
  CHECK(matches.size() == 1 && matches[0].token == 3 && matches[0].candidate == -1);
  CHECK(matches[0].length == 2 && matches[0].probability == 0.5F);
  store.match(store.advance(store.state(), 9), std::vector<Token>{3}, matches);
  CHECK(matches.empty());
  store.match(store.advance(store.state(), 3), std::vector<Token>{1}, matches);
  CHECK(matches.size() == 1 && matches[0].length == 3 && matches[0].candidate == 0);
}

// Prevents a tree that is no tree when the context store opens nodes at every level.
void test_search() {
  ContextStore store(4);
  store.append(std::vector<Token>{1, 2, 3, 4, 5, 6, 1, 2});
  const std::vector<Token> tokens(8, 9);
  const std::vector<float> probabilities(8, 0.25F), ones(8, 1.0F);
  const std::vector<float> model(4 * 3, 0.0F), context_model(4 * 4 * 3, 0.0F);
  dart::SearchParams params;
  params.level_weights = params.logit_weights = ones;
  params.tree_size = 100;
  params.beam_width = 20;
  params.acceptance = model;
  params.acceptance_lengths = 1;
  params.context_store = &store;
  params.context_acceptance = context_model;
  params.context_lengths = 4;
  const dart::Tree tree =
      dart::search_tree({tokens, probabilities, 4, 2}, nullptr, std::vector<Token>{2}, params);
  std::vector<Token> opened;
  for (std::size_t i = 1; i < tree.tokens.size(); ++i) {
    CHECK(tree.parents[i] >= 0 && static_cast<std::size_t>(tree.parents[i]) < i);
    if (tree.ranks[i] == -1) opened.push_back(tree.tokens[i]);
  }
  CHECK((opened == std::vector<Token>{3, 4, 5, 6}));
  params.context_lengths = 5;
  CHECK_THROWS(
      dart::search_tree({tokens, probabilities, 4, 2}, nullptr, std::vector<Token>{2}, params),
      std::invalid_argument, "context_acceptance has 48 values");
}

void test_refusals() {
  CHECK_THROWS(ContextStore(0), std::invalid_argument, "order is 0");
  CHECK_THROWS(ContextStore(9), std::invalid_argument, "order is 9");
  ContextStore store(2);
  CHECK_THROWS(store.append(std::vector<Token>{1, -1}), std::invalid_argument, "token is -1");
  CHECK(store.num_tokens() == 0);
}

}  // namespace

int main() {
  test_growth();
  test_states();
  test_search();
  test_refusals();
}
