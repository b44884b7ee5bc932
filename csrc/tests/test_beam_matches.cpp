#include <random>
#include <vector>

#include "check.h"
#include "dart/beam_matches.h"
#include "dart/ngram_builder.h"
#include "dart/ngram_encoder.h"

using dart::BeamMatches;
using dart::Match;
using dart::NgramStore;
using dart::State;
using dart::Token;
using dart::ValueCoding;

namespace {

std::vector<std::byte> make_image(ValueCoding coding) {
  std::mt19937 random(1);
  dart::NgramBuilder builder(4);
  for (int i = 0; i < 40; ++i) {
    std::vector<Token> text(200);
    for (Token& token : text) token = static_cast<Token>(random() % 30 * (random() % 8));
    builder.add(text);
  }
  return dart::serialize_store(builder.build(), coding);
}

// Prevents a beam that gets other answers than its members would alone, and a state after a
// candidate that differs from a fresh walk.
void check_members(ValueCoding coding) {
  const auto image = make_image(coding);
  const auto store = NgramStore::view(image, "memory");
  std::vector<Token> tokens;
  std::vector<Match> wanted;
  for (Token token = 0; token < 220; token += 3) {
    wanted.push_back(NgramStore::wanted(static_cast<std::uint32_t>(tokens.size()), token));
    tokens.push_back(token);
  }
  const std::vector<float> ceilings(tokens.size(), 0.0F);
  std::vector<State> members;
  for (const std::vector<Token>& context :
       {std::vector<Token>{}, {0, 0, 0}, {4, 8}, {12, 0}, {0, 0}, {4, 8}, {1000}, {0, 6, 0}}) {
    members.push_back(store.state_after(context));
  }
  BeamMatches beam(store);
  for (int level = 0; level < 2; ++level) {  // the second finds nothing of the first
    beam.start(tokens, ceilings);
    for (const State& state : members) beam.add(state, 0.0F, -1.0F);
    beam.look_up(-1.0F);
    for (std::size_t member = 0; member < members.size(); ++member) {
      std::vector<Match> shorter;
      for (int length = 0; length < store.order(); ++length) {
        std::vector<Match> matches(tokens.size());
        matches.resize(store.match_children(members[member], length, wanted, shorter, matches));
        const BeamMatches::Range range = beam.matches_of(member, length);
        CHECK(range.end - range.begin == matches.size());
        for (std::size_t m = 0; m < matches.size(); ++m) {
          const Match& found = beam[range.begin + m];
          CHECK(found.candidate == matches[m].candidate && found.child == matches[m].child);
          CHECK(found.position == matches[m].position);
          CHECK(found.probability == matches[m].probability);
        }
        shorter.swap(matches);
      }
      for (std::uint32_t i = 0; i < tokens.size(); ++i) {
        CHECK(beam.state_after(member, i).nodes == store.advance(members[member], tokens[i]).nodes);
      }
    }
  }
}

// Prevents candidates from being left out that one of the members in a context could still use, and
// lookups for those that nobody can.
void test_threshold() {
  const auto image = make_image(ValueCoding::exact());
  const auto store = NgramStore::view(image, "memory");
  const std::vector<Token> tokens{0, 4, 8};
  const State shared = store.state_after(std::vector<Token>{0});
  const State other = store.state_after(std::vector<Token>{4});
  BeamMatches beam(store);
  const std::vector<float> ceilings{-1.0F, -3.0F, -2.0F};
  beam.start(tokens, ceilings);
  beam.add(shared, -3.0F, -4.0F);
  beam.add(shared, -2.0F, -4.0F);  // -2 - 3 is below the threshold, -2 - 2 is not
  beam.add(other, -3.5F, -4.0F);   // not even -3.5 - 1 reaches it
  beam.look_up(-4.0F);
  for (const std::size_t member : {std::size_t{0}, std::size_t{1}}) {
    const BeamMatches::Range range = beam.matches_of(member, 1);
    CHECK(range.end - range.begin == 2);
    CHECK(beam[range.begin].candidate == 0 && beam[range.begin + 1].candidate == 2);
  }
  for (const int length : {0, 1, 2, 3}) {
    CHECK(beam.matches_of(2, length).begin == beam.matches_of(2, length).end);
  }
  // Later ones have what was found, unless they can use more.
  beam.add(shared, -2.5F, -4.0F);
  beam.add(shared, -1.0F, -4.0F);
  beam.look_up(-4.0F);
  CHECK(beam.matches_of(3, 1).begin == beam.matches_of(1, 1).begin);
  const BeamMatches::Range all = beam.matches_of(4, 1);
  CHECK(all.end - all.begin == 3);
}

}  // namespace

int main() {
  check_members(ValueCoding::exact());
  check_members(ValueCoding::quantised(8));
  test_threshold();
}
