// Python bindings of dart_core: conversions and error mapping, no logic.
//
// Arrays cross as C-contiguous numpy arrays of the exact dtype (noconvert); dart/ngram.py and
// dart/search.py convert. FormatError becomes dart.errors.NgramFormatError, FileError
// dart.errors.CheckpointError, std::invalid_argument ValueError.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "dart/context_store.h"
#include "dart/errors.h"
#include "dart/lookup_timing.h"
#include "dart/ngram_builder.h"
#include "dart/ngram_encoder.h"
#include "dart/ngram_store.h"
#include "dart/progress.h"
#include "dart/tree_search.h"
#include "dart/trie_import.h"
#include "dart/window_runs.h"

namespace py = pybind11;

namespace {

template <typename T>
using Array = py::array_t<T, py::array::c_style>;

template <typename T>
std::span<const T> span_of(const Array<T>& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}

template <typename T, typename U>
Array<T> to_array(const std::vector<U>& values) {
  Array<T> array(static_cast<py::ssize_t>(values.size()));
  std::copy(values.begin(), values.end(), array.mutable_data());
  return array;
}

void throw_python(const char* name, const char* message) {
  py::set_error(py::module_::import("dart.errors").attr(name), message);
}

// The values of an array [levels, matched lengths, 3]; sets `lengths`.
std::span<const float> coefficients(const std::string& name, const Array<float>& array,
                                    std::size_t& lengths) {
  if (array.ndim() != 3 || array.shape(2) != 3) {
    throw std::invalid_argument(name + " must have shape [levels, matched lengths, 3]");
  }
  lengths = static_cast<std::size_t>(array.shape(1));
  return span_of(array);
}

py::tuple search_tree(const Array<dart::Token>& topk_tokens, const Array<float>& topk_probs,
                      const dart::NgramStore* store, const Array<dart::Token>& context,
                      const std::vector<dart::Token>& eos_tokens, std::size_t tree_size,
                      std::size_t beam_width, float ngram_weight, const Array<float>& level_weights,
                      const Array<float>& logit_weights,
                      const std::optional<Array<float>>& acceptance,
                      const dart::ContextStore* context_store,
                      const std::optional<Array<float>>& context_acceptance, float min_score) {
  if (topk_tokens.ndim() != 2 || topk_probs.ndim() != 2) {
    throw std::invalid_argument("topk_tokens and topk_probs must have two dimensions [L, k]");
  }
  const dart::Candidates candidates{span_of(topk_tokens), span_of(topk_probs),
                                    static_cast<std::size_t>(topk_tokens.shape(0)),
                                    static_cast<std::size_t>(topk_tokens.shape(1))};
  dart::SearchParams params{.level_weights = span_of(level_weights),
                            .logit_weights = span_of(logit_weights),
                            .ngram_weight = ngram_weight,
                            .tree_size = tree_size,
                            .beam_width = beam_width,
                            .eos_tokens = eos_tokens,
                            .acceptance = {},
                            .acceptance_lengths = 0,
                            .context_store = context_store,
                            .context_acceptance = {},
                            .context_lengths = 0,
                            .min_score = min_score};
  if (acceptance.has_value()) {
    params.acceptance = coefficients("acceptance", *acceptance, params.acceptance_lengths);
  }
  if (context_acceptance.has_value()) {
    params.context_acceptance =
        coefficients("context_acceptance", *context_acceptance, params.context_lengths);
  }
  dart::Tree tree;
  {
    const py::gil_scoped_release release;
    tree = dart::search_tree(candidates, store, span_of(context), params);
  }
  return py::make_tuple(
      to_array<std::int64_t>(tree.tokens), to_array<std::int64_t>(tree.parents),
      to_array<float>(tree.scores), to_array<float>(tree.draft_probabilities),
      to_array<float>(tree.ngram_probabilities), to_array<std::int32_t>(tree.matched_lengths),
      to_array<std::int32_t>(tree.ranks), to_array<float>(tree.context_probabilities),
      to_array<std::int32_t>(tree.context_lengths));
}

py::tuple probabilities(const dart::NgramStore& store, const Array<dart::Token>& context,
                        const Array<dart::Token>& tokens) {
  Array<float> values(tokens.size());
  Array<std::int32_t> matched(tokens.size());
  const auto size = static_cast<std::size_t>(tokens.size());
  const std::span<float> values_out(values.mutable_data(), size);
  const std::span<std::int32_t> matched_out(matched.mutable_data(), size);
  {
    const py::gil_scoped_release release;
    store.score(store.state_after(span_of(context)), span_of(tokens), values_out, matched_out);
  }
  return py::make_tuple(std::move(values), std::move(matched));
}

py::tuple match(const dart::ContextStore& store, const Array<dart::Token>& path,
                const Array<dart::Token>& candidates) {
  dart::ContextState state = store.state();
  for (const dart::Token token : span_of(path)) state = store.advance(state, token);
  std::vector<dart::ContextMatch> matches;
  store.match(state, span_of(candidates), matches);
  const auto size = static_cast<py::ssize_t>(matches.size());
  Array<dart::Token> tokens(size);
  Array<std::int32_t> indices(size), lengths(size);
  Array<float> values(size);
  for (py::ssize_t i = 0; i < size; ++i) {
    const dart::ContextMatch& found = matches[static_cast<std::size_t>(i)];
    tokens.mutable_at(i) = found.token;
    indices.mutable_at(i) = found.candidate;
    lengths.mutable_at(i) = found.length;
    values.mutable_at(i) = found.probability;
  }
  return py::make_tuple(std::move(tokens), std::move(indices), std::move(lengths),
                        std::move(values));
}

py::tuple time_lookups(const dart::NgramStore& store, const Array<dart::Token>& contexts,
                       const Array<dart::Token>& candidates, int rounds) {
  if (contexts.ndim() != 2 || candidates.ndim() != 2) {
    throw std::invalid_argument("contexts and candidates must have two dimensions");
  }
  std::vector<dart::LookupTime> times;
  {
    const py::gil_scoped_release release;
    times = dart::time_lookups(store, span_of(contexts),
                               static_cast<std::size_t>(contexts.shape(1)), span_of(candidates),
                               static_cast<std::size_t>(candidates.shape(1)), rounds);
  }
  const auto size = static_cast<py::ssize_t>(times.size());
  Array<double> first(size), repeated(size), empty(size);
  for (py::ssize_t i = 0; i < size; ++i) {
    first.mutable_at(i) = times[static_cast<std::size_t>(i)].first;
    repeated.mutable_at(i) = times[static_cast<std::size_t>(i)].repeated;
    empty.mutable_at(i) = times[static_cast<std::size_t>(i)].empty;
  }
  return py::make_tuple(std::move(first), std::move(repeated), std::move(empty));
}

dart::Residence residence_named(const std::string& name) {
  if (name == "mapped") return dart::Residence::kMapped;
  if (name == "preloaded") return dart::Residence::kPreloaded;
  if (name == "locked") return dart::Residence::kLocked;
  throw std::invalid_argument("residence is " + name + ", expected mapped, preloaded or locked");
}

dart::ValueCoding value_coding(bool exact, int bits) {
  return exact ? dart::ValueCoding::exact() : dart::ValueCoding::quantised(bits);
}

// `callback` (or None) as the Progress of a job that runs without the interpreter lock: told of
// every new stage, and now and then. Also lets Ctrl-C through. `callback` must outlive it.
dart::Progress progress_of(const py::object& callback) {
  using Clock = std::chrono::steady_clock;
  static constexpr auto kInterval = std::chrono::milliseconds(100);  // the lock may take a while
  return [&callback, next = Clock::time_point{}, last = std::string()](
             const std::string& stage, double done, double total) mutable {
    if (stage == last && Clock::now() < next) return;
    last = stage;
    {
      const py::gil_scoped_acquire lock;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      if (!callback.is_none()) callback(stage, done, total);
    }
    next = Clock::now() + kInterval;  // from its end: a slow callback must not slow the job down
  };
}

void import_trie(const std::string& source, const std::string& destination, bool exact, int bits,
                 std::uint64_t memory, const py::object& progress, const py::function& notice) {
  const auto tell = [&notice](const std::string& text) {
    const py::gil_scoped_acquire lock;
    notice(text);
  };
  const py::gil_scoped_release release;
  dart::import_trie(source, destination, value_coding(exact, bits),
                    {memory, progress_of(progress), tell});
}

py::list level_sizes(const dart::NgramStore& store) {
  py::list levels;
  for (const dart::LevelSizes& level : store.level_sizes()) {
    levels.append(py::make_tuple(level.nodes, level.tokens, level.children, level.values,
                                 level.value_bits, level.is_remapped));
  }
  return levels;
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  module.doc() = "C++ core: n-gram stores, builder, importer and tree search.";
#if defined(__x86_64__) && defined(__POPCNT__)
  if (!__builtin_cpu_supports("popcnt")) {
    throw py::import_error("this processor has no instruction popcnt, which the core needs");
  }
#endif

  py::register_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const dart::FormatError& e) {
      throw_python("NgramFormatError", e.what());
    } catch (const dart::FileError& e) {
      throw_python("CheckpointError", e.what());
    }
  });

  py::class_<dart::NgramStore>(module, "NgramStore",
                               "A memory-mapped n-gram store; safe to read from many threads.")
      .def_static(
          "open",
          [](const std::string& path, const std::string& residence) {
            const dart::Residence kind = residence_named(residence);
            const py::gil_scoped_release release;
            return dart::NgramStore::open(path, kind);
          },
          py::arg("path"), py::arg("residence") = "mapped",
          "Map a store file; reads its header only.")
      .def_property_readonly("order", &dart::NgramStore::order)
      .def_property_readonly("is_exact", &dart::NgramStore::is_exact)
      .def_property_readonly("num_nodes",
                             [](const dart::NgramStore& store) { return store.num_nodes(); })
      .def_property_readonly("num_bytes", &dart::NgramStore::num_bytes)
      .def_property_readonly("vocab_size", &dart::NgramStore::vocab_size)
      .def("probabilities", &probabilities, py::arg("context").noconvert(),
           py::arg("tokens").noconvert(),
           "context int32 [m], tokens int32 [n] -> (float32 [n], matched lengths int32 [n]).")
      .def(
          "count",
          [](const dart::NgramStore& store, const Array<dart::Token>& ngram) {
            return store.count(span_of(ngram));
          },
          py::arg("ngram").noconvert(), "Occurrences of an n-gram, int32 [n].")
      .def("level_sizes", &level_sizes,
           "Per level: nodes, bytes of tokens, children and values, bits per value, remapped.")
      .def("verify", &dart::NgramStore::verify, py::call_guard<py::gil_scoped_release>(),
           "Read the whole file and check every checksum and invariant.");

  py::class_<dart::ContextStore>(module, "ContextStore",
                                 "Counts of the n-grams of one growing text; for one thread.")
      .def(py::init<int>(), py::arg("order"))
      .def_property_readonly("order", &dart::ContextStore::order)
      .def_property_readonly("num_tokens", &dart::ContextStore::num_tokens)
      .def_property_readonly("num_nodes", &dart::ContextStore::num_nodes)
      .def(
          "append",
          [](dart::ContextStore& store, const Array<dart::Token>& tokens) {
            store.append(span_of(tokens));
          },
          py::arg("tokens").noconvert(), "Append tokens, int32 [n].")
      .def("match", &match, py::arg("path").noconvert(), py::arg("candidates").noconvert(),
           "path int32 [m] behind the text, candidates int32 [n] ascending -> tokens, indices "
           "(int32), lengths (int32), probabilities (float32) of what has followed.");

  py::class_<dart::NgramBuilder>(module, "NgramBuilder", "Counts n-grams of token sequences.")
      .def(py::init<int, std::size_t>(), py::arg("order"), py::arg("capacity"))
      .def_property_readonly("num_tokens", &dart::NgramBuilder::token_count)
      .def_property_readonly("size", &dart::NgramBuilder::size)
      .def(
          "add",
          [](dart::NgramBuilder& builder, const Array<dart::Token>& sequence) {
            builder.add(span_of(sequence));
          },
          py::arg("sequence").noconvert(), "Add one sequence, int32 [n].")
      .def(
          "add_piece",
          [](dart::NgramBuilder& builder, const Array<dart::Token>& piece, std::size_t starts) {
            builder.add(span_of(piece), starts);
          },
          py::arg("piece").noconvert(), py::arg("starts"),
          "Add a piece of a sequence, int32 [n], with the n-grams that begin in its first tokens.")
      .def(
          "write",
          [](const dart::NgramBuilder& builder, const std::string& path, bool exact, int bits,
             const std::vector<dart::Count>& min_counts) {
            dart::write_store(builder.build(min_counts), path, value_coding(exact, bits));
          },
          py::arg("path"), py::kw_only(), py::arg("exact"), py::arg("bits"), py::arg("min_counts"),
          py::call_guard<py::gil_scoped_release>(),
          "Count, and write the store; the file appears whole or not at all.")
      .def(
          "write_run",
          [](const dart::NgramBuilder& builder, const std::string& path,
             const py::object& progress) {
            const dart::Progress told = progress_of(progress);
            const py::gil_scoped_release release;
            builder.write_run(path, told);
          },
          py::arg("path"), py::kw_only(), py::arg("progress").none(true),
          "Count, and write the windows as a run.")
      .def("clear", &dart::NgramBuilder::clear, "Forget all sequences.");

  module.def(
      "combine_runs",
      [](const std::vector<std::string>& runs, int order, const std::string& destination,
         std::size_t memory, const py::object& progress) {
        const dart::Progress told = progress_of(progress);
        const py::gil_scoped_release release;
        dart::combine_runs(runs, order, destination, memory, told);
      },
      py::arg("runs"), py::arg("order"), py::arg("destination"), py::kw_only(), py::arg("memory"),
      py::arg("progress").none(true), "Make one run of several.");

  module.def(
      "merge_runs",
      [](const std::vector<std::string>& runs, int order, std::int64_t begin, std::int64_t end,
         const std::vector<dart::Count>& min_counts, const std::string& prefix, std::size_t memory,
         const py::object& progress) {
        const dart::Progress told = progress_of(progress);
        const py::gil_scoped_release release;
        dart::merge_runs(runs, order, {begin, end}, min_counts, prefix, memory, told);
      },
      py::arg("runs"), py::arg("order"), py::arg("begin"), py::arg("end"), py::arg("min_counts"),
      py::arg("prefix"), py::kw_only(), py::arg("memory"), py::arg("progress").none(true),
      "Merge what begins with the tokens begin .. end - 1 into levels.");

  module.def(
      "join_level",
      [](const std::vector<std::string>& parts, int level, int order, const std::string& prefix,
         const py::object& progress) {
        const dart::Progress told = progress_of(progress);
        const py::gil_scoped_release release;
        dart::join_level(parts, level, order, prefix, told);
      },
      py::arg("parts"), py::arg("level"), py::arg("order"), py::arg("prefix"), py::kw_only(),
      py::arg("progress").none(true), "Join a level of parts.");

  module.def(
      "encode_levels",
      [](const std::string& prefix, int order, std::int64_t num_tokens,
         const std::string& destination, bool exact, int bits, std::size_t memory,
         const py::object& progress) {
        const dart::Progress told = progress_of(progress);
        const py::gil_scoped_release release;
        dart::write_store_from_levels(
            prefix, order, num_tokens, destination, value_coding(exact, bits),
            {.memory_bytes = memory,
             .progress = [&told](int level, std::uint64_t done, std::uint64_t nodes) {
               told("encoding level " + std::to_string(level), static_cast<double>(done),
                    static_cast<double>(nodes));
             }});
      },
      py::arg("prefix"), py::arg("order"), py::arg("num_tokens"), py::arg("destination"),
      py::kw_only(), py::arg("exact"), py::arg("bits"), py::arg("memory"),
      py::arg("progress").none(true), "Make a store of joined levels.");

  module.def("import_trie", &import_trie, py::arg("source"), py::arg("destination"), py::kw_only(),
             py::arg("exact"), py::arg("bits"), py::arg("memory"), py::arg("progress").none(true),
             py::arg("notice"),
             "Convert an upstream .trie file within that many bytes of memory; progress(stage, "
             "done, total) and notice(text) are told what happens.");

  module.def("time_lookups", &time_lookups, py::arg("store"), py::arg("contexts").noconvert(),
             py::arg("candidates").noconvert(), py::arg("rounds"),
             "Nanoseconds of matching candidates int32 [n, k], ascending, with contexts int32 "
             "[n, m] of a store, float64 [n]: for the first time, the mean of repetitions, and "
             "what of that is for the empty context.");

  module.def("search_tree", &search_tree, py::arg("topk_tokens").noconvert(),
             py::arg("topk_probs").noconvert(), py::arg("store").none(true),
             py::arg("context").noconvert(), py::kw_only(), py::arg("eos_tokens"),
             py::arg("tree_size"), py::arg("beam_width"), py::arg("ngram_weight"),
             py::arg("level_weights").noconvert(), py::arg("logit_weights").noconvert(),
             py::arg("acceptance").noconvert().none(true), py::arg("context_store").none(true),
             py::arg("context_acceptance").noconvert().none(true), py::arg("min_score"),
             "See dart.search.search_tree. Returns tokens, parents (int64), scores, draft "
             "probabilities, n-gram probabilities (float32), matched lengths, ranks (int32), "
             "context probabilities (float32), context lengths (int32).");
}
