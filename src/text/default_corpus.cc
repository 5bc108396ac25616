#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/check.h"
#include "text/corpus.h"

namespace alibi::text {
namespace {

namespace fs = std::filesystem;

/// The numbers in a name, for comparing versions: "llvm-14" -> {14}, "12.2.0" -> {12, 2, 0}.
std::vector<int> version_of(std::string_view name) {
  std::vector<int> numbers;
  bool in_number = false;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (digit && !in_number) numbers.push_back(0);
    if (digit) numbers.back() = std::min(numbers.back() * 10 + (c - '0'), 1'000'000);
    in_number = digit;
  }
  return numbers;
}

/// Whether the standard library's headers lie in this folder.
bool holds_headers(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_regular_file(folder / "vector", ignored);
}

/// The folder `parent`/NAME/`below` with headers whose NAME begins with `prefix` and has the highest version; empty if
/// there is none.
fs::path newest(const fs::path& parent, std::string_view prefix, const fs::path& below = {}) {
  fs::path best;
  std::vector<int> best_version;
  std::error_code error;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const fs::path folder = below.empty() ? entry->path() : entry->path() / below;
    const std::vector<int> version = version_of(name);
    // Among links to one version ("12" and "12.2.0") the lesser name wins, whatever order the system lists them in.
    const bool better = best.empty() || version > best_version || (version == best_version && folder < best);
    if (better && holds_headers(folder)) best = folder, best_version = version;
  }
  return best;
}

}  // namespace

std::vector<std::string> default_corpus(const fs::path& root) {
  const fs::path candidates[] = {
      newest(root / "usr/include/c++", ""),                 // libstdc++ of a Linux distribution
      newest(root / "usr/local/include/c++", ""),           // a compiler built by hand, or the gcc image of Docker
      newest(root / "usr/lib", "llvm-", "include/c++/v1"),  // libc++ of Debian and Ubuntu
      newest(root / "Library/Developer/CommandLineTools/SDKs", "MacOSX", "usr/include/c++/v1"),
  };
  for (const fs::path& folder : candidates) {
    if (!folder.empty()) return {folder.string()};
  }
  fail_usage(
      "[text] no text given, and the default corpus (the C++ standard library's headers) is not on this machine; name "
      "files, folders or - for standard input");
}

}  // namespace alibi::text
