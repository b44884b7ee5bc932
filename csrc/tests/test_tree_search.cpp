#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>
#include <vector>

#include "check.h"
#include "dart/ngram_builder.h"
#include "dart/ngram_encoder.h"
#include "dart/tree_search.h"

using dart::Candidates;
using dart::NgramStore;
using dart::search_tree;
using dart::SearchParams;
using dart::Token;
using dart::Tree;

namespace {

const std::vector<float> kOnes(16, 1.0F);

SearchParams make_params(std::size_t tree_size, std::size_t beam_width) {
  SearchParams params;
  params.level_weights = kOnes;
  params.logit_weights = kOnes;
  params.tree_size = tree_size;
  params.beam_width = beam_width;
  return params;
}

void check_well_formed(const Tree& tree) {
  std::set<std::pair<std::int32_t, Token>> edges;
  CHECK(tree.parents[0] == -1);
  for (std::size_t i = 1; i < tree.tokens.size(); ++i) {
    CHECK(tree.parents[i] >= 0 && static_cast<std::size_t>(tree.parents[i]) < i);
    CHECK(tree.scores[i] <= tree.scores[tree.parents[i]]);
    CHECK(edges.insert({tree.parents[i], tree.tokens[i]}).second);
  }
}

// Prevents errors in the formula, the beam and the cut on a tree small enough to do by hand.
void test_by_hand() {
  dart::NgramBuilder builder(2);
  builder.add(std::vector<Token>{5, 6, 5, 6, 5, 7});
  const auto image = dart::serialize_store(builder.build(), dart::ValueCoding::exact());
  const auto store = NgramStore::view(image, "memory");
  const std::vector<Token> tokens{5, 9, 6, 7};
  const std::vector<float> probabilities{0.5F, 0.25F, 0.5F, 0.5F};
  const Tree tree =
      search_tree({tokens, probabilities, 2, 2}, &store, std::vector<Token>{1}, make_params(4, 1));
  CHECK((tree.tokens == std::vector<Token>{1, 5, 9, 6, 7}));
  CHECK((tree.parents == std::vector<std::int32_t>{-1, 0, 0, 1, 1}));
  CHECK((tree.matched_lengths == std::vector<std::int32_t>{0, 0, 0, 1, 1}));
  CHECK((tree.ranks == std::vector<std::int32_t>{0, 0, 1, 0, 1}));
  CHECK(std::abs(tree.scores[3] - (2 * std::log(0.5F) + 0.5F * std::log(2.0F / 3))) < 1e-6F);
  CHECK(std::abs(tree.scores[4] - (2 * std::log(0.5F) + 0.5F * std::log(1.0F / 3))) < 1e-6F);
  check_well_formed(tree);
}

// Prevents a cut through exactly equal scores from orphaning a node.
void test_ties() {
  const std::vector<Token> tokens{1, 2, 1, 2, 1, 2, 1, 2};
  const std::vector<float> probabilities(8, 1.0F);
  for (std::size_t tree_size = 0; tree_size <= 30; ++tree_size) {
    for (const std::size_t beam_width : {1, 2, 3, 20}) {
      const Tree tree = search_tree({tokens, probabilities, 4, 2}, nullptr, std::vector<Token>{0},
                                    make_params(tree_size, beam_width));
      check_well_formed(tree);
      CHECK(tree.tokens.size() <= tree_size + 1);
    }
  }
}

// Prevents EOS from taking a beam place while others fill it, and from being dropped otherwise.
void test_eos() {
  const std::vector<Token> tokens{2, 3, 4, 5};
  const std::vector<float> probabilities{0.9F, 0.1F, 0.5F, 0.5F};
  const std::vector<Token> eos{2};
  SearchParams params = make_params(20, 1);
  params.eos_tokens = eos;
  const Candidates candidates{tokens, probabilities, 2, 2};
  const std::vector<Token> context{0};
  Tree tree = search_tree(candidates, nullptr, context, params);
  CHECK((tree.parents == std::vector<std::int32_t>{-1, 0, 0, 2, 2}));
  params.beam_width = 2;
  tree = search_tree(candidates, nullptr, context, params);
  CHECK(tree.tokens.size() == 7);
}

// Prevents a wrong row of the acceptance model's coefficients, and nodes below the least score.
void test_acceptance() {
  dart::NgramBuilder builder(3);
  builder.add(std::vector<Token>{5, 6, 5, 6, 5, 7});
  const auto image = dart::serialize_store(builder.build(), dart::ValueCoding::exact());
  const auto store = NgramStore::view(image, "memory");
  const std::vector<Token> tokens{5, 9, 6, 7};
  const std::vector<float> probabilities{0.5F, 0.25F, 0.5F, 0.5F};
  // Two levels; for matched lengths 0 and 1, the latter for all longer ones, too.
  const std::vector<float> acceptance{0, 1, 9, 1, 0, 1, -1, 0, 9, 2, 0, 0.5F};
  SearchParams params = make_params(9, 9);
  params.acceptance = acceptance;
  params.acceptance_lengths = 2;
  const auto log_sigmoid = [](float z) { return -std::log1p(std::exp(-z)); };
  const Candidates candidates{tokens, probabilities, 2, 2};
  const std::vector<Token> context{6};
  const Tree tree = search_tree(candidates, &store, context, params);
  check_well_formed(tree);
  CHECK((tree.tokens == std::vector<Token>{6, 5, 9, 6, 7, 6, 7}));
  CHECK((tree.parents == std::vector<std::int32_t>{-1, 0, 0, 1, 1, 2, 2}));
  CHECK((tree.matched_lengths == std::vector<std::int32_t>{0, 1, 0, 2, 2, 0, 0}));
  const float first = log_sigmoid(1 + std::log(1.0F));
  CHECK(std::abs(tree.scores[1] - first) < 1e-6F);
  CHECK(std::abs(tree.scores[2] - log_sigmoid(std::log(0.25F))) < 1e-6F);
  CHECK(std::abs(tree.scores[3] - (first + log_sigmoid(2 + 0.5F * std::log(0.5F)))) < 1e-6F);
  CHECK(std::abs(tree.scores[5] - (tree.scores[2] + log_sigmoid(-1))) < 1e-6F);
  params.min_score = -1;
  CHECK(search_tree(candidates, &store, context, params).tokens.size() == 4);
  params.acceptance_lengths = 3;
  CHECK_THROWS(search_tree(candidates, &store, context, params), std::invalid_argument,
               "acceptance has 12 values");
}

// Prevents undefined behaviour on empty and invalid input.
void test_degenerate() {
  const std::vector<Token> context{8};
  CHECK(search_tree({{}, {}, 0, 0}, nullptr, context, make_params(9, 1)).tokens == context);
  CHECK(search_tree({{}, {}, 3, 0}, nullptr, context, make_params(9, 1)).tokens == context);
  const std::vector<Token> padding{-1, -1};
  std::vector<float> values{0.5F, 0.5F};
  CHECK(search_tree({padding, values, 1, 2}, nullptr, context, make_params(9, 1)).tokens ==
        context);
  CHECK_THROWS(search_tree({padding, values, 1, 2}, nullptr, {}, make_params(9, 1)),
               std::invalid_argument, "context is empty");
  CHECK_THROWS(search_tree({padding, values, 2, 2}, nullptr, context, make_params(9, 1)),
               std::invalid_argument, "[levels, candidates]");
  CHECK_THROWS(search_tree({padding, values, 1, 2}, nullptr, context, make_params(9, 0)),
               std::invalid_argument, "beam_width is 0");
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -0.1F, 1.1F,
                          std::numeric_limits<float>::infinity()}) {
    values[1] = bad;
    CHECK_THROWS(search_tree({padding, values, 1, 2}, nullptr, context, make_params(9, 1)),
                 std::invalid_argument, "topk_probs[0, 1]");
  }
}

}  // namespace

int main() {
  test_by_hand();
  test_ties();
  test_eos();
  test_acceptance();
  test_degenerate();
}
