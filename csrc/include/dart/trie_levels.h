// From the records of an upstream `.trie` to the levels of a store, with sorting alone: whatever
// its size, a file is only ever read front to back.
//
// At each depth two steps. read_nodes() goes through the file beside the nodes of this depth,
// sorted by id, whose places in their level are known: it checks each record against the entry of
// its parent that led to it, and notes its count and its children by that place. sort_children()
// sorts both by place: the counts make a column of this level, the children, in the order of
// parent and token, are the next one. When every node has been reached so, each exactly once, every
// child entry agreed with the record it names, there is no cycle and nothing lies apart.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "dart/column.h"
#include "dart/external_sort.h"
#include "dart/import_state.h"
#include "dart/level_storage.h"
#include "dart/store_data.h"
#include "dart/trie_reader.h"

namespace dart {

// How far a level's step is; may throw.
using StepProgress = std::function<void(const ImportState& state, std::uint64_t done)>;

// `Id`: an integer that holds the id of every node.
template <typename Id>
class TrieLevels {
 public:
  TrieLevels(TrieReader& trie, LevelStorage& storage, std::size_t memory_bytes, ImportState& state,
             StepProgress progress)
      : trie_(trie),
        storage_(storage),
        memory_bytes_(memory_bytes),
        state_(state),
        progress_(std::move(progress)) {
    trie_.set_report([this](std::uint64_t id) { report(id); });
    if (!storage_.is_on_disk()) return;
    adopt(places_, "places-", state_.places);
    adopt(children_, "children-", state_.children);
    adopt(counts_, "counts-", state_.counts);
  }

  bool is_done() const { return state_.depth > trie_.order(); }
  // Afterwards the state is that of the next step. On disk, what this one read is still there.
  // Throws FormatError, FileError and what the progress throws.
  void step() {
    report(0);
    if (state_.is_read) {
      sort_children();
    } else {
      read_nodes();
    }
  }
  // Files that the state needs besides its runs.
  std::vector<std::string> files() const { return {ids_path(state_.depth)}; }

 private:
  // Packed, as every byte goes through the disk twice. Positions are within a level.
#pragma pack(push, 4)
  struct Place {
    Id id;
    Id parent;
    Token token;
    Id position;
    bool operator<(const Place& other) const {
      return id != other.id ? id < other.id : parent < other.parent;
    }
  };
  struct Child {
    Id parent_position;
    Token token;
    Id id;
    bool operator<(const Child& other) const {
      return parent_position != other.parent_position ? parent_position < other.parent_position
                                                      : token < other.token;
    }
  };
  struct Counted {
    Id position;
    std::int32_t count;
    bool operator<(const Counted& other) const { return position < other.position; }
  };
#pragma pack(pop)

  template <typename Record>
  using Sorter = ExternalSorter<Record>;

  void read_nodes() {
    const int depth = state_.depth;
    const bool has_children = depth < trie_.order();
    trie_.rewind();
    make(counts_, "counts-", memory_bytes_ / 4, state_.nodes);
    make(children_, "children-", memory_bytes_ / 2, trie_.node_count() - state_.reached);
    const auto read = [&](const Place& place) {
      const TrieRecord record = trie_.read(place.id, depth == 1);
      check(record, place);
      if (depth == 0) {
        state_.root_count = record.count;
      } else {
        counts_->add({place.position, record.count});
      }
      for (std::uint64_t i = 0; has_children && i < record.children; ++i) {
        const TrieChild child = trie_.next_child();
        children_->add({place.position, child.token, static_cast<Id>(child.id)});
      }
    };
    if (depth == 0) {
      read({0, 0, 0, 0});
    } else {
      std::optional<Place> last;
      places_->finish(
          [&](const Place& place) {
            if (last && last->id == place.id) {
              trie_.fail(TrieReader::of_node("child id", place.parent),
                         std::to_string(place.id) + " again", std::string("each id once"));
            }
            if (last) read(*last);
            last = place;
          },
          memory_bytes_ / 4);
      if (last) read(*last);
    }
    if (depth == 1) trie_.finish();  // the one pass that looks at every record
    places_.reset();
    state_.places = {};
    keep(counts_, state_.counts);
    keep(children_, state_.children);
    state_.is_read = true;
  }

  void check(const TrieRecord& record, const Place& place) const {
    if (state_.depth == 0) {
      if (record.parent != 0) trie_.fail("parent of the root", record.parent, 0);
      return;
    }
    if (record.parent != place.parent) {
      trie_.fail(TrieReader::of_node("parent id", place.id), record.parent,
                 std::uint64_t{place.parent});
    }
    if (record.token != place.token) {
      trie_.fail(TrieReader::of_node("token", place.id), record.token, Token{place.token});
    }
  }

  void sort_children() {
    const int depth = state_.depth;
    if (depth > 0) {
      auto column = storage_.counts(depth, state_.nodes);
      // Counts <= 0 are what the original's pruning leaves behind.
      counts_->finish([&](const Counted& node) {
        column.add(static_cast<Count>(std::max(std::int32_t{node.count}, 0)));
      });
      column.commit();
    }
    counts_.reset();
    state_.counts = {};
    if (depth < trie_.order()) {
      sort_next_level();
    } else {
      storage_.children(depth, 0).commit();  // the last level has none
    }
    children_.reset();
    state_.children = {};
    state_.is_read = false;
    ++state_.depth;
    if (!is_done()) return;
    if (state_.reached != trie_.node_count()) {
      trie_.fail("nodes within " + std::to_string(trie_.order()) + " steps of the root",
                 state_.reached, trie_.node_count());
    }
  }

  void sort_next_level() {
    const int depth = state_.depth;
    const std::uint64_t nodes = children_->count();
    auto tokens = storage_.tokens(depth + 1, nodes);
    auto ends = storage_.children(depth, state_.nodes);
    ends.add(0);
    std::vector<Id> made_ids;
    auto new_ids =
        storage_.is_on_disk() ? ColumnWriter<Id>(ids_path(depth + 1)) : ColumnWriter<Id>(made_ids);
    if (!storage_.is_on_disk()) made_ids.reserve(nodes);
    make(places_, "places-", memory_bytes_ / 2, nodes);
    ColumnReader<Id> parent_ids(ids());
    std::uint64_t parent_position = 0;
    std::uint64_t position = 0;
    Token last_token = -1;
    children_->finish(
        [&](const Child& child) {
          for (; parent_position < child.parent_position; ++parent_position) {
            ends.add(position);
            last_token = -1;
          }
          const Token token = child.token;
          if (token == last_token) {
            trie_.fail(TrieReader::of_node("child token", parent_ids[parent_position]),
                       std::to_string(token) + " twice", std::string("distinct tokens"));
          }
          last_token = token;
          tokens.add(token);
          new_ids.add(Id{child.id});  // not by reference: packed
          places_->add({child.id, parent_ids[parent_position], token, static_cast<Id>(position)});
          if (++position % kReportEvery == 0) report(position);
        },
        memory_bytes_ / 2);
    for (; parent_position < state_.nodes; ++parent_position) ends.add(position);
    ends.commit();
    tokens.commit();
    new_ids.commit();
    if (!storage_.is_on_disk()) ids_.swap(made_ids);
    keep(places_, state_.places);
    state_.nodes = nodes;
    state_.reached += nodes;
  }

  // The ids of the nodes at hand by position.
  Column<Id> ids() const {
    if (state_.depth == 0 || !storage_.is_on_disk()) return Column<Id>(std::span<const Id>(ids_));
    return Column<Id>(ids_path(state_.depth));
  }
  std::string ids_path(int depth) const { return storage_.path("ids-" + std::to_string(depth)); }

  template <typename Record>
  void make(std::optional<Sorter<Record>>& sorter, const std::string& name,
            std::size_t memory_bytes, std::uint64_t most) {
    sorter.emplace(storage_.path(name + std::to_string(state_.depth) + "-"), memory_bytes, most,
                   [this] { report(done_); });
  }
  template <typename Record>
  void keep(std::optional<Sorter<Record>>& sorter, Runs& runs) {
    if (storage_.is_on_disk()) runs = {sorter->persist(), sorter->count()};
  }
  template <typename Record>
  void adopt(std::optional<Sorter<Record>>& sorter, const std::string& name, const Runs& runs) {
    make(sorter, name, memory_bytes_, 0);
    sorter->adopt(runs.files, runs.count);
  }

  void report(std::uint64_t done) {
    done_ = done;
    progress_(state_, done);
  }

  static constexpr std::uint64_t kReportEvery = std::uint64_t{1} << 15;

  TrieReader& trie_;
  LevelStorage& storage_;
  std::size_t memory_bytes_;
  ImportState& state_;
  StepProgress progress_;
  std::uint64_t done_ = 0;
  std::vector<Id> ids_{0};  // of the nodes at hand by position; on disk, of the root alone
  std::optional<Sorter<Place>> places_;
  std::optional<Sorter<Child>> children_;
  std::optional<Sorter<Counted>> counts_;
};

}  // namespace dart
