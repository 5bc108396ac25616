#include "text/corpus.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/random.h"
#include "text/hash.h"
#include "text/text_encoding.h"

namespace alibi::text {
namespace {

/// Mixed, so that names that differ only in the last letter do not stay neighbours. This hash is part of the split
/// rule: another one would hold out other files.
uint64_t hash_name(std::string_view name) { return core::mix(fnv1a(name), 0); }

std::string count_files(size_t count) { return count == 1 ? "1 file" : fmt::format("{} files", count); }

/// Equal for two copies of a text.
using Content = std::pair<int64_t, core::Digest>;
Content content_of(const Document& document) { return {document.size(), document.digest()}; }

/// Moves out the elements where `take` is true, and keeps the order of both parts.
std::vector<Document> extract(std::vector<Document>& documents, const std::vector<bool>& take) {
  std::vector<Document> taken, left;
  for (size_t i = 0; i < documents.size(); ++i) (take[i] ? taken : left).push_back(std::move(documents[i]));
  documents = std::move(left);
  return taken;
}

/// Drops copies. The first one in the order of names and paths stays.
void drop_copies(std::vector<Document>& documents) {
  std::vector<size_t> order(documents.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(documents[a].name, documents[a].path) < std::tie(documents[b].name, documents[b].path);
  });
  std::vector<bool> copy(documents.size());
  std::set<Content> contents;
  for (const size_t i : order) copy[i] = !contents.insert(content_of(documents[i])).second;
  extract(documents, copy);
}

/// Start of the last tenth of a text: the start of a line if there is one, else of a character.
size_t last_tenth(std::string_view text) {
  const size_t nine_tenths = text.size() - std::max<size_t>(text.size() / 10, 1);
  const size_t newline = text.find('\n', nine_tenths == 0 ? 0 : nine_tenths - 1);
  if (newline != std::string_view::npos && newline + 1 < text.size()) return newline + 1;
  const size_t earlier = text.rfind('\n', nine_tenths);
  if (earlier != std::string_view::npos && earlier + 1 >= text.size() / 2 && earlier + 1 < text.size()) {
    return earlier + 1;
  }
  size_t cut = nine_tenths;
  while (cut > 1 && nine_tenths - cut < 3 && utf8_sequence_length(text, cut) == 0) --cut;
  return cut;
}

Corpus split_single(const Document& document) {
  const std::string shown = document.path == "-" ? "standard input" : document.path.filename().string();
  const auto cut = static_cast<int64_t>(last_tenth(document.open().view()));
  check(cut > 0 && cut < document.size(), "[text] {} is too short to hold out a tenth of it: {} bytes", shown,
        document.size());
  Corpus corpus;
  corpus.train.push_back(document.part(0, cut));
  corpus.valid.push_back(document.part(cut, document.size()));
  corpus.split_rule = fmt::format("The last tenth of {} is held out for validation.", shown);
  return corpus;
}

Corpus split_by_name(std::vector<Document> documents) {
  struct Key {
    uint64_t hash;
    size_t index;
  };
  std::vector<Key> keys;
  for (size_t i = 0; i < documents.size(); ++i) keys.push_back({hash_name(documents[i].name), i});
  const auto before = [&](const Key& a, const Key& b) {
    return std::tuple(a.hash, content_of(documents[a.index])) < std::tuple(b.hash, content_of(documents[b.index]));
  };
  std::sort(keys.begin(), keys.end(), before);
  // The largest file is always trained on: otherwise its name could leave almost nothing to train on.
  const auto largest = std::max_element(keys.begin(), keys.end(), [&](const Key& a, const Key& b) {
    return documents[a.index].size() < documents[b.index].size();
  });
  const int64_t total = bytes_of(documents);
  std::vector<bool> held_out(documents.size());
  int64_t held_out_bytes = 0;
  for (auto key = keys.begin(); key != keys.end(); ++key) {
    const bool lowest_tenth = key->hash < UINT64_MAX / 10;
    if (key == largest || !(lowest_tenth || held_out_bytes < total / 100 + 1)) continue;
    held_out[key->index] = true;
    held_out_bytes += documents[key->index].size();
  }
  Corpus corpus;
  const size_t all = documents.size();
  corpus.valid = extract(documents, held_out);
  corpus.train = std::move(documents);
  corpus.split_rule = fmt::format("{} of {}, chosen by a hash of their names, {} held out for validation.",
                                  corpus.valid.size(), count_files(all), corpus.valid.size() == 1 ? "is" : "are");
  return corpus;
}

void count_bytes(Corpus& corpus) {
  corpus.train_bytes = bytes_of(corpus.train);
  corpus.valid_bytes = bytes_of(corpus.valid);
}

std::filesystem::path canonical(const Document& document) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::weakly_canonical(document.path, error);
  return error ? document.path : path;
}

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

Corpus split_corpus(std::vector<Document> documents) {
  drop_copies(documents);
  check(!documents.empty(), "[text] no text to train on");
  Corpus corpus = documents.size() == 1 ? split_single(documents[0]) : split_by_name(std::move(documents));
  count_bytes(corpus);
  return corpus;
}

Corpus split_corpus(std::vector<Document> documents, std::vector<Document> valid) {
  check(!valid.empty(), "[text] no text to validate on");
  std::set<std::filesystem::path> valid_paths;
  std::set<Content> valid_contents;
  for (const Document& document : valid) {
    valid_paths.insert(canonical(document));
    valid_contents.insert(content_of(document));
  }
  std::vector<bool> held_out(documents.size());
  for (size_t i = 0; i < documents.size(); ++i) {
    held_out[i] = valid_paths.contains(canonical(documents[i])) || valid_contents.contains(content_of(documents[i]));
  }
  const size_t left_out = extract(documents, held_out).size();
  check(!documents.empty(), "[text] nothing is left to train on: all {} are also in the held-out text",
        count_files(left_out));
  Corpus corpus;
  corpus.split_rule = fmt::format("The held-out text was given: {}.", count_files(valid.size()));
  if (left_out > 0) {
    corpus.split_rule += fmt::format(" {} of the training text {} in it and not trained on.", count_files(left_out),
                                     left_out == 1 ? "is" : "are");
  }
  corpus.train = std::move(documents);
  corpus.valid = std::move(valid);
  count_bytes(corpus);
  return corpus;
}

Corpus read_corpus(std::vector<std::string> inputs, const std::vector<std::string>& valid_inputs,
                   std::istream& standard_input, const std::string& field) {
  const auto reads_standard_input = [](const std::vector<std::string>& list) {
    return std::find(list.begin(), list.end(), "-") != list.end();
  };
  check_usage(!(reads_standard_input(inputs) && reads_standard_input(valid_inputs)),
              "[text] standard input (-) cannot be both training and validation text");
  if (inputs.empty()) inputs = default_corpus();
  FilesRead files;
  std::vector<Document> documents = read_documents(inputs, standard_input, field, &files);
  Corpus corpus = valid_inputs.empty()
                      ? split_corpus(std::move(documents))
                      : split_corpus(std::move(documents), read_documents(valid_inputs, standard_input, field, &files));
  corpus.files = std::move(files);
  return corpus;
}

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
