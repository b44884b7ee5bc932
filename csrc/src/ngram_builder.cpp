#include "dart/ngram_builder.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace dart {
namespace {

constexpr Token kEnd = -1;                            // follows every sequence in the text
constexpr std::uint64_t kMaxPositions = 0xFFFFFFFEU;  // a position takes half of an Occurrence

// One occurrence of a window: its next token above the position of that token, so that sorting
// plain integers groups equal tokens and keeps each group in text order.
using Occurrence = std::uint64_t;

constexpr Token token_of(Occurrence occurrence) { return static_cast<Token>(occurrence >> 32); }

// Emits the n-grams below one node, depth first in ascending token order. Each level's array then
// receives its nodes grouped by parent and sorted, which is the order the file needs.
class Emitter {
 public:
  Emitter(std::span<const Token> text, int order) : text_(text), levels_(order) {}

  void emit(std::span<Occurrence> occurrences, int depth) {
    std::sort(occurrences.begin(), occurrences.end());
    LevelData& level = levels_[depth];
    const bool is_last = depth + 1 == static_cast<int>(levels_.size());
    for (std::size_t begin = 0; begin < occurrences.size();) {
      const Token token = token_of(occurrences[begin]);
      std::size_t end = begin + 1;
      while (end < occurrences.size() && token_of(occurrences[end]) == token) ++end;
      level.tokens.push_back(token);
      level.counts.push_back(end - begin);
      if (!is_last) {
        level.children.push_back(levels_[depth + 1].tokens.size());
        emit(following(occurrences.subspan(begin, end - begin)), depth + 1);
      }
      begin = end;
    }
  }

  std::vector<LevelData> finish() {
    for (std::size_t i = 0; i + 1 < levels_.size(); ++i) {
      levels_[i].children.push_back(levels_[i + 1].tokens.size());
    }
    return std::move(levels_);
  }

 private:
  // Moves each occurrence on by one token, in place, and drops those whose sequence ends.
  std::span<Occurrence> following(std::span<Occurrence> occurrences) const {
    std::size_t kept = 0;
    for (const Occurrence occurrence : occurrences) {
      const std::uint64_t position = (occurrence & 0xFFFFFFFFU) + 1;
      const Token token = text_[position];
      if (token != kEnd) {
        occurrences[kept++] = static_cast<Occurrence>(token) << 32 | position;
      }
    }
    return occurrences.first(kept);
  }

  std::span<const Token> text_;
  std::vector<LevelData> levels_;
};

}  // namespace

NgramBuilder::NgramBuilder(int order) : order_(order) {
  if (order < 1 || order > kMaxOrder) {
    throw std::invalid_argument("order is " + std::to_string(order) + ", expected 1.." +
                                std::to_string(kMaxOrder));
  }
}

void NgramBuilder::add(std::span<const Token> sequence) {
  for (const Token token : sequence) {
    if (token < 0) {
      throw std::invalid_argument("token is " + std::to_string(token) + ", expected 0 or more");
    }
  }
  if (sequence.size() >= kMaxPositions - text_.size()) {
    throw std::invalid_argument("there are more than 2^32 - 2 tokens; build from a part of them");
  }
  if (sequence.empty()) return;
  text_.insert(text_.end(), sequence.begin(), sequence.end());
  text_.push_back(kEnd);
  token_count_ += sequence.size();
}

void NgramBuilder::add(std::span<const Token> tokens, std::span<const std::int64_t> offsets) {
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const std::int64_t begin = offsets[i];
    const std::int64_t end = offsets[i + 1];
    if (begin < 0 || end < begin || static_cast<std::uint64_t>(end) > tokens.size()) {
      throw std::invalid_argument("offsets " + std::to_string(begin) + ".." + std::to_string(end) +
                                  " of sequence " + std::to_string(i) +
                                  " are not a range of the tokens");
    }
    add(tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
  }
}

StoreData NgramBuilder::build() const {
  std::vector<Occurrence> occurrences;
  occurrences.reserve(token_count_);
  for (std::size_t position = 0; position < text_.size(); ++position) {
    if (text_[position] != kEnd) {
      occurrences.push_back(static_cast<Occurrence>(text_[position]) << 32 | position);
    }
  }
  Emitter emitter(text_, order_);
  emitter.emit(occurrences, 0);
  StoreData data;
  data.root_count = static_cast<std::int64_t>(token_count_);
  data.levels = emitter.finish();
  return data;
}

}  // namespace dart
