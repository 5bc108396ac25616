#include "formats/hub.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "core/check.h"
#include "core/files.h"

namespace alibi::formats {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHubPrefix = "hf:", kModels = "models--";

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// One of the two parts of a repository's name, as huggingface_hub checks it.
bool is_name_part(std::string_view part) {
  return !part.empty() && part.size() <= 96 && is_word_character(part.front()) && is_word_character(part.back()) &&
         std::all_of(part.begin(), part.end(), [](char c) { return is_word_character(c) || c == '-' || c == '.'; }) &&
         part.find("--") == std::string_view::npos && part.find("..") == std::string_view::npos;
}

/// A path below a folder, of characters that mean nothing to a shell. It may not begin like an option.
bool is_plain_path(std::string_view path) {
  return !path.empty() && path.front() != '/' && path.back() != '/' && path.front() != '-' &&
         path.find("..") == std::string_view::npos && path.find("//") == std::string_view::npos &&
         std::all_of(path.begin(), path.end(), [](char c) {
           return is_word_character(c) || std::string_view("-./+=,%").find(c) != std::string_view::npos;
         });
}

std::optional<std::string> environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

/// Replaces ~, $NAME and ${NAME}, as Python's expanduser() and expandvars() do.
std::string expanded(const std::string& path) {
  std::string result;
  size_t at = 0;
  const std::optional<std::string> home = environment("HOME");
  if (home && (path == "~" || path.starts_with("~/"))) {
    result = *home;
    at = 1;
  }
  while (at < path.size()) {
    size_t begin = at + 1, end = begin;
    const bool has_braces = path[at] == '$' && begin < path.size() && path[begin] == '{';
    if (has_braces) {
      end = path.find('}', ++begin);
      if (end == std::string::npos) end = begin;
    } else if (path[at] == '$') {
      while (end < path.size() && is_word_character(path[end])) ++end;
    }
    const std::optional<std::string> value =
        end > begin ? environment(path.substr(begin, end - begin).c_str()) : std::nullopt;
    if (value) {
      result += *value;
      at = end + (has_braces ? 1 : 0);
    } else {
      result += path[at++];
    }
  }
  return result;
}

/// The folder of the cache, found as huggingface_hub finds it.
fs::path hub_cache() {
  if (const auto cache = environment("HF_HUB_CACHE")) return expanded(*cache);
  if (const auto cache = environment("HUGGINGFACE_HUB_CACHE")) return expanded(*cache);  // its old name
  const fs::path usual = fs::path(environment("XDG_CACHE_HOME").value_or("~/.cache")) / "huggingface";
  return expanded((fs::path(environment("HF_HOME").value_or(usual.string())) / "hub").string());
}

/// The path in the cache; nothing if the cache does not know the revision.
std::optional<fs::path> path_in_cache(const HubName& name, const fs::path& cache) {
  std::string folder(kModels);
  for (const char c : name.repository) folder += c == '/' ? std::string("--") : std::string(1, c);
  const fs::path repository = cache / folder, ref = repository / "refs" / name.revision;
  std::string commit = name.revision;  // a commit has no ref
  if (core::path_exists(ref) && !core::is_folder(ref)) commit = core::read_file(ref, 4096);
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == '\r')) commit.pop_back();
  if (commit.size() != 40 || !std::all_of(commit.begin(), commit.end(), is_word_character)) return {};
  const fs::path snapshot = repository / "snapshots" / commit;
  return name.file.empty() ? snapshot : snapshot / name.file;
}

}  // namespace

std::optional<HubName> hub_name(const std::string& name, const std::string& revision) {
  std::string_view rest = name;
  HubName result{.given = name};
  if (!revision.empty()) result.revision = revision;
  const bool has_prefix = rest.starts_with(kHubPrefix);
  if (has_prefix) {
    rest.remove_prefix(kHubPrefix.size());
    if (const size_t at = rest.find('@'); at != std::string_view::npos) {
      check_usage(revision.empty(), "[model] {} names a revision, and --revision names {}; give only one of them", name,
                  revision);
      result.revision = rest.substr(at + 1);
      rest = rest.substr(0, at);
    }
  }
  const size_t first = rest.find('/');
  const size_t second = first == std::string_view::npos ? first : rest.find('/', first + 1);
  result.repository = rest.substr(0, second);
  if (second != std::string_view::npos) result.file = rest.substr(second + 1);
  const bool is_repository =
      is_name_part(rest.substr(0, first)) && !result.repository.ends_with(".git") &&
      (first == std::string_view::npos || is_name_part(std::string_view(result.repository).substr(first + 1)));
  if (!has_prefix) {
    if (!is_repository || first == std::string_view::npos || second != std::string_view::npos) return {};
    if (core::path_exists(name)) return {};
  }
  check_usage(is_repository && (second == std::string_view::npos || is_plain_path(result.file)),
              "[model] found the name '{}', expected hf:organization/name, hf:organization/name/file or either with "
              "@revision at its end",
              name);
  check_usage(is_plain_path(result.revision),
              "[model] found the revision '{}' of {}, expected the name of a branch or a tag, or a commit",
              result.revision, result.repository);
  return result;
}

std::filesystem::path cached_model(const HubName& name) {
  const fs::path cache = hub_cache();
  if (std::optional<fs::path> path = path_in_cache(name, cache); path && core::path_exists(*path)) return *path;
  std::string command;
  for (const std::string& word : download_command(name)) {
    command += (command.empty() ? "" : " ") + (word.starts_with('*') ? "'" + word + "'" : word);
  }
  fail("[model] {}: {}not in the cache of the Hugging Face hub ({}); to download it, run: {}", name.given,
       name.given.starts_with(kHubPrefix) ? "" : "no such folder or file, and ", cache.string(), command);
}

std::vector<std::string> download_command(const HubName& name) {
  std::vector<std::string> words = {"hf", "download", name.repository};
  if (!name.file.empty()) words.push_back(name.file);
  if (name.revision != "main") words.insert(words.end(), {"--revision", name.revision});
  // Many repositories have their weights twice: as safetensors, and as files of PyTorch, which this library cannot
  // read.
  if (name.file.empty()) words.insert(words.end(), {"--exclude", "*.bin"});
  return words;
}

std::string repository_of(const std::filesystem::path& snapshot) {
  std::string name = snapshot.parent_path().parent_path().filename().string();
  if (snapshot.parent_path().filename() != "snapshots" || !name.starts_with(kModels)) return {};
  name.erase(0, kModels.size());
  if (const size_t mark = name.find("--"); mark != std::string::npos) name.replace(mark, 2, "/");
  return name;
}

}  // namespace alibi::formats

namespace alibi {

std::filesystem::path find_model(const std::string& name) {
  const std::optional<formats::HubName> hub = formats::hub_name(name);
  return hub ? formats::cached_model(*hub) : std::filesystem::path(name);
}

}  // namespace alibi
