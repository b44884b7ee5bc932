#include "dart/import_state.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <sstream>

#include "dart/temporary_file.h"

namespace dart {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTitle = "dart import 1";  // another number where the steps change

void write(std::ostream& out, const Runs& runs) {
  out << runs.count << ' ' << runs.files.size() << '\n';
  for (const std::string& file : runs.files) out << fs::path(file).filename().string() << '\n';
}

void read(std::istream& in, const fs::path& folder, Runs& runs) {
  std::size_t files = 0;
  in >> runs.count >> files;
  in.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  for (std::string file; runs.files.size() < files && std::getline(in, file);) {
    runs.files.push_back((folder / file).string());
  }
}

}  // namespace

std::optional<ImportState> ImportState::load(const std::string& path) {
  std::ifstream in(path);
  const fs::path folder = fs::path(path).parent_path();
  ImportState state;
  std::string title;
  if (!std::getline(in, title) || title != kTitle || !std::getline(in, state.source)) return {};
  in >> state.depth >> state.is_read >> state.root_count >> state.nodes >> state.reached;
  read(in, folder, state.places);
  read(in, folder, state.children);
  read(in, folder, state.counts);
  std::string end;
  if (!(in >> end) || end != "end") return {};
  return state;
}

void ImportState::save(const std::string& path) const {
  std::ostringstream out;
  out << kTitle << '\n' << source << '\n';
  out << depth << ' ' << is_read << ' ' << root_count << ' ' << nodes << ' ' << reached << '\n';
  write(out, places);
  write(out, children);
  write(out, counts);
  out << "end\n";
  const std::string text = out.str();
  TemporaryFile file(path);
  file.append(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace dart
