#include "places.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <system_error>

#include "core/check.h"
#include "core/files.h"
#include "core/locks.h"

namespace alibi::cli {
namespace {

namespace fs = std::filesystem;

using FileId = std::pair<dev_t, ino_t>;

struct Place {
  std::string path, option;
  FileId id;
  bool is_folder;
};

struct Places {
  std::vector<Place> inputs, outputs;       // outputs that exist
  std::map<fs::path, std::string> written;  // canonical paths of all outputs, and their options
};
Places places;

/// Nothing for what does not exist, and for devices, FIFOs and sockets.
std::optional<Place> place_of(const std::string& path, const std::string& option, std::optional<int> descriptor) {
  struct stat info {};
  const int failed = descriptor ? ::fstat(*descriptor, &info) : ::stat(path.c_str(), &info);
  if (failed != 0 || !(S_ISREG(info.st_mode) || S_ISDIR(info.st_mode))) return {};
  return Place{path, option, {info.st_dev, info.st_ino}, S_ISDIR(info.st_mode)};
}

/// Calls use(id) for each file and folder below a folder. Links are followed, and each folder is visited once.
template <class Use>
void each_below(const fs::path& folder, std::set<FileId>& visited, const Use& use) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::optional<Place> place = place_of(entry->path().string(), "", {});
    if (!place) continue;
    use(*place);
    if (place->is_folder && visited.insert(place->id).second) each_below(entry->path(), visited, use);
  }
}

/// Throws UsageError if an output is an input, is in an input folder, or is a folder with an input in it.
void check_apart(const std::vector<Place>& outputs, const std::vector<Place>& inputs) {
  const auto check_same = [](const Place& output, const Place& input, const Place& same) {
    check_usage(output.id != same.id || output.is_folder,
                "[{}] {} would be replaced, and {} names it{} as an input; choose another place for the output, or "
                "move the file first",
                output.option, output.path, input.option,
                input.is_folder ? fmt::format(", with the folder {},", input.path) : "");
  };
  for (const Place& input : inputs) {
    for (const Place& output : outputs) {
      check_same(output, input, input);
      std::set<FileId> visited;
      if (!output.is_folder) continue;
      const auto check_input = [&](const Place& below) {
        check_usage(below.id != input.id,
                    "[{}] what is in {} would be replaced, and {} names {} in it as an input; choose another place for "
                    "the output",
                    output.option, output.path, input.option, input.path);
      };
      check_input(output);
      each_below(output.path, visited, check_input);
    }
    const bool has_file = std::any_of(outputs.begin(), outputs.end(), [](const Place& one) { return !one.is_folder; });
    std::set<FileId> visited;
    if (!input.is_folder || !has_file) continue;
    each_below(input.path, visited, [&](const Place& below) {
      for (const Place& output : outputs) check_same(output, input, below);
    });
  }
}

fs::path canonical_path(const fs::path& path) {
  std::error_code error;
  fs::path result = fs::weakly_canonical(path, error);
  return error ? path : result;
}

/// Whether a path is the other one or is in it.
bool is_within(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

}  // namespace

void add_input(const std::string& path, const std::string& option) {
  std::optional<Place> input =
      path == "-" ? place_of("standard input", option, STDIN_FILENO) : place_of(path, option, {});
  // LABEL=RESULTS of `alibi report`
  if (const size_t sign = path.find('='); !input && sign != std::string::npos) {
    input = place_of(path.substr(sign + 1), option, {});
  }
  if (!input) return;
  check_apart(places.outputs, {*input});
  places.inputs.push_back(*std::move(input));
}

void add_outputs(const std::vector<fs::path>& paths, const std::string& option) {
  std::vector<Place> outputs;
  for (const fs::path& path : paths) {
    const std::optional<int> descriptor = core::descriptor_of(path);
    // A shell has cut the file of `> FILE` already; what `>> FILE` appends replaces nothing.
    if (descriptor && (::fcntl(*descriptor, F_GETFL) & O_APPEND) != 0) continue;
    if (auto place = place_of(path.string(), option, descriptor)) outputs.push_back(*std::move(place));
    if (descriptor || !core::replaced_file(path)) continue;
    const fs::path place = canonical_path(path);
    for (const auto& [other, of_option] : places.written) {
      check_usage(!is_within(place, other) && !is_within(other, place),
                  "[{}] {} would be written there, and also by {}; choose another place for one of them", option,
                  path.string(), of_option);
    }
    places.written[place] = option;
  }
  check_apart(outputs, places.inputs);
  places.outputs.insert(places.outputs.end(), outputs.begin(), outputs.end());
}

}  // namespace alibi::cli
