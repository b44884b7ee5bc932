#include "dart/values_encoder.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_set>
#include <vector>

#include "dart/quantiser.h"
#include "dart/word_writer.h"

namespace dart {
namespace {

template <typename Value>
void write_codebook(const std::vector<Value>& codebook, WritableBytes& bytes,
                    std::uint64_t offset) {
  bytes.write_at(offset, std::as_bytes(std::span<const Value>(codebook)));
}

class ExactValues final : public ValuesEncoder {
 public:
  explicit ExactValues(const Column<Count>& counts) : counts_(counts) {}

  std::uint64_t choose(Pulse& pulse) override {
    std::vector<bool> small(kSmall);
    std::unordered_set<Count> large;
    ColumnReader<Count> counts(counts_);
    for (NodeId node = 0; node < counts.size(); ++node) {
      pulse.at(node);
      const Count count = counts[node];
      if (count < kSmall) {
        small[count] = true;
      } else {
        large.insert(count);
      }
    }
    for (Count count = 0; count < kSmall; ++count) {
      if (small[count]) codebook_.push_back(count);
    }
    const auto from = static_cast<std::ptrdiff_t>(codebook_.size());
    codebook_.insert(codebook_.end(), large.begin(), large.end());
    std::sort(codebook_.begin() + from, codebook_.end());
    if (codebook_.size() > kMaxCodebook) throw std::invalid_argument("there are too many counts");
    return codebook_.size();
  }

  void write(WritableBytes& bytes, std::uint64_t offset, const ValuesLayout& layout,
             Pulse& pulse) override {
    write_codebook(codebook_, bytes, offset);
    PackedWriter codes(bytes, offset + 8 * layout.codebook_words, counts_.size(),
                       layout.code_width);
    ColumnReader<Count> counts(counts_);
    for (NodeId node = 0; node < counts.size(); ++node) {
      pulse.at(node);
      const auto at = std::lower_bound(codebook_.begin(), codebook_.end(), counts[node]);
      codes.add(static_cast<std::uint64_t>(at - codebook_.begin()));
    }
    codes.finish();
  }

 private:
  static constexpr Count kSmall = 1 << 16;  // most counts are, and need no set

  Column<Count> counts_;
  std::vector<Count> codebook_;
};

class QuantisedValues final : public ValuesEncoder {
 public:
  QuantisedValues(int bits, const Column<Count>& counts, const Column<Count>& parent_counts,
                  const Column<NodeId>& parent_children)
      : quantiser_(bits),
        counts_(counts),
        parent_counts_(parent_counts),
        parent_children_(parent_children) {}

  std::uint64_t choose(Pulse& pulse) override {
    for_each(pulse, [this](float probability, Count count) { quantiser_.add(probability, count); });
    codebook_ = quantiser_.choose();
    return codebook_.size();
  }

  void write(WritableBytes& bytes, std::uint64_t offset, const ValuesLayout& layout,
             Pulse& pulse) override {
    write_codebook(codebook_, bytes, offset);
    PackedWriter codes(bytes, offset + 8 * layout.codebook_words, counts_.size(),
                       layout.code_width);
    for_each(pulse, [&](float probability, Count) { codes.add(quantiser_.code(probability)); });
    codes.finish();
  }

 private:
  template <typename Visit>
  void for_each(Pulse& pulse, const Visit& visit) const {
    ColumnReader<Count> counts(counts_);
    ColumnReader<Count> wholes(parent_counts_);
    for_each_run(parent_children_, [&](std::uint64_t parent, NodeId begin, NodeId end) {
      pulse.at(begin);
      const Count whole = wholes[parent];
      const float reciprocal = whole == 0 ? 0.0F : 1.0F / static_cast<float>(whole);
      for (NodeId node = begin; node < end; ++node) {
        const Count count = counts[node];
        visit(std::min(static_cast<float>(count) * reciprocal, 1.0F), count);
      }
    });
  }

  Quantiser quantiser_;
  Column<Count> counts_;
  Column<Count> parent_counts_;
  Column<NodeId> parent_children_;
  std::vector<float> codebook_;
};

class NoValues final : public ValuesEncoder {
 public:
  std::uint64_t choose(Pulse&) override { return 0; }
  void write(WritableBytes&, std::uint64_t, const ValuesLayout&, Pulse&) override {}
};

}  // namespace

std::unique_ptr<ValuesEncoder> exact_values(const Column<Count>& counts) {
  return std::make_unique<ExactValues>(counts);
}

std::unique_ptr<ValuesEncoder> quantised_values(int bits, const Column<Count>& counts,
                                                const Column<Count>& parent_counts,
                                                const Column<NodeId>& parent_children) {
  return std::make_unique<QuantisedValues>(bits, counts, parent_counts, parent_children);
}

std::unique_ptr<ValuesEncoder> no_values() { return std::make_unique<NoValues>(); }

}  // namespace dart
