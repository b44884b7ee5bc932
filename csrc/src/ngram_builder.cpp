#include "dart/ngram_builder.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "dart/record_file.h"
#include "dart/trie_writer.h"

namespace dart {
namespace {

constexpr std::uint64_t kMaxPositions = 0xFFFFFFFEU;  // a position takes half of an Occurrence

// One occurrence of a window: its next token above the position of that token, so that sorting
// plain integers groups equal tokens and keeps each group in text order.
using Occurrence = std::uint64_t;

constexpr Occurrence occurrence(Token token, std::uint64_t position) {
  return static_cast<Occurrence>(token) << 32 | position;
}
constexpr Token token_of(Occurrence occurrence) { return static_cast<Token>(occurrence >> 32); }
constexpr std::uint64_t position_of(Occurrence occurrence) { return occurrence & 0xFFFFFFFFU; }

// Visits the windows that begin alike, in ascending order.
class WindowCounter {
 public:
  using Visit = std::function<void(std::span<const Token>, Count)>;

  WindowCounter(std::span<const Token> text, int order, const Visit& visit)
      : text_(text), window_(static_cast<std::size_t>(order)), visit_(visit) {}

  // `occurrences` are of tokens that follow the first `depth` tokens of the window.
  void count(std::span<Occurrence> occurrences, std::size_t depth) {
    if (occurrences.size() == 1) return visit_one(position_of(occurrences.front()), depth);
    std::sort(occurrences.begin(), occurrences.end());
    for (std::size_t begin = 0; begin < occurrences.size();) {
      const Token token = token_of(occurrences[begin]);
      std::size_t end = begin + 1;
      while (end < occurrences.size() && token_of(occurrences[end]) == token) ++end;
      window_[depth] = token;
      const auto group = occurrences.subspan(begin, end - begin);
      begin = end;
      if (depth + 1 == window_.size()) {
        visit_(window_, group.size());
        continue;
      }
      const auto rest = following(group);
      if (rest.size() < group.size()) {
        std::fill(window_.begin() + static_cast<std::ptrdiff_t>(depth) + 1, window_.end(), kEnd);
        visit_(window_, group.size() - rest.size());
      }
      if (!rest.empty()) count(rest, depth + 1);
    }
  }

 private:
  // What occurs once needs no sorting.
  void visit_one(std::uint64_t position, std::size_t depth) {
    for (bool has_ended = false; depth < window_.size(); ++depth) {
      const Token token = has_ended ? kEnd : text_[position++];
      has_ended = token == kEnd;
      window_[depth] = token;
    }
    visit_(window_, 1);
  }

  // Moves each occurrence on by one token, in place, and drops those whose sequence ends.
  std::span<Occurrence> following(std::span<Occurrence> occurrences) const {
    std::size_t kept = 0;
    for (const Occurrence found : occurrences) {
      const std::uint64_t position = position_of(found) + 1;
      const Token token = text_[position];
      if (token != kEnd) occurrences[kept++] = occurrence(token, position);
    }
    return occurrences.first(kept);
  }

  std::span<const Token> text_;
  std::vector<Token> window_;
  const Visit& visit_;
};

// A level in memory, to be written to.
class LevelArrays {
 public:
  explicit LevelArrays(bool is_last) : is_last_(is_last) {
    if (!is_last_) level_.children.push_back(0);
  }
  void add(Token token, Count count, NodeId children_end) {
    level_.tokens.push_back(token);
    level_.counts.push_back(count);
    if (!is_last_) level_.children.push_back(children_end);
  }
  std::uint64_t count() const { return level_.tokens.size(); }
  LevelData& data() { return level_; }

 private:
  bool is_last_;
  LevelData level_;
};

}  // namespace

NgramBuilder::NgramBuilder(int order, std::size_t capacity) : order_(order) {
  check_order(order);
  text_.reserve(capacity);
}

void NgramBuilder::add(std::span<const Token> sequence, std::size_t starts) {
  for (const Token token : sequence) {
    if (token < 0) {
      throw std::invalid_argument("token is " + std::to_string(token) + ", expected 0 or more");
    }
  }
  if (sequence.size() >= kMaxPositions - text_.size()) {
    throw std::invalid_argument("there are more than 2^32 - 2 tokens; build from a part of them");
  }
  if (starts == 0) return;
  starts = std::min(starts, sequence.size());
  text_.insert(text_.end(), sequence.begin(), sequence.end());
  if (starts < sequence.size()) {
    skipped_.insert(skipped_.end(), {text_.size() - (sequence.size() - starts), text_.size()});
  }
  text_.push_back(kEnd);
  token_count_ += starts;
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

void NgramBuilder::clear() {
  text_.clear();
  skipped_.clear();
  token_count_ = 0;
}

StoreData NgramBuilder::build(std::span<const Count> min_counts) const {
  std::vector<LevelArrays> levels;
  for (int n = 1; n <= order_; ++n) levels.emplace_back(n == order_);
  const std::vector<Count> all(levels.size(), 1);
  TrieWriter writer(levels, min_counts.empty() ? std::span(all) : min_counts);
  count([&writer](std::span<const Token> window, Count count) { writer.add(window, count); });
  writer.finish();
  StoreData data;
  data.root_count = static_cast<std::int64_t>(token_count_);
  for (LevelArrays& level : levels) data.levels.push_back(std::move(level.data()));
  return data;
}

void NgramBuilder::write_run(const std::string& path, const Progress& progress) const {
  with_order(order_, [&]<int Order>() {
    RecordWriter<Window<Order>> writer(path);
    Steps steps(progress, "counting", token_count_);
    count([&](std::span<const Token> tokens, Count count) {
      Window<Order> window;
      std::copy_n(tokens.begin(), Order, window.tokens.begin());
      for_each_piece(count, [&](std::uint32_t piece) {
        window.count = piece;
        writer.add(window);
        steps.add_one();
      });
    });
    writer.commit();
  });
}

// Calls `visit` with every window of the text and its count, in ascending order.
void NgramBuilder::count(const std::function<void(std::span<const Token>, Count)>& visit) const {
  std::vector<Occurrence> occurrences;
  occurrences.reserve(token_count_);
  const auto add = [&](std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t at = begin; at < end; ++at) {
      if (text_[at] != kEnd) occurrences.push_back(occurrence(text_[at], at));
    }
  };
  std::uint64_t begin = 0;
  for (std::size_t i = 0; i < skipped_.size(); i += 2) {
    add(begin, skipped_[i]);
    begin = skipped_[i + 1];
  }
  add(begin, text_.size());
  WindowCounter(text_, order_, visit).count(occurrences, 0);
}

}  // namespace dart
