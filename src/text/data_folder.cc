#include "text/data_folder.h"

#include <unistd.h>

#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/files.h"
#include "formats/json.h"
#include "text/stream.h"
#include "text/token_file.h"
#include "text/tokenizer_files.h"

namespace alibi {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDataFile = "data.json";
constexpr const char* kTrainFile = "train.tokens";
constexpr const char* kValidFile = "valid.tokens";
constexpr int64_t kVersion = 1;

OrderedJson write_part(const fs::path& path, const std::vector<Document>& documents, const Tokenizer& tokenizer,
                       const std::function<void(int64_t)>& on_bytes) {
  const TokenFileHeader header = write_token_file(path, tokenizer, [&](const AppendTokens& append) {
    encode_stream(tokenizer, documents, [&](std::span<const int32_t> ids, int64_t bytes) {
      append(ids, bytes);
      on_bytes(bytes);
    });
  });
  return {{"tokens", header.tokens},
          {"bytes", header.bytes},
          {"documents", documents.size()},
          {"checksum", fmt::format("{:016x}", header.checksum)}};
}

TokenFile read_part(const fs::path& folder, const char* name, const JsonObject& data, const Tokenizer& tokenizer) {
  const fs::path path = folder / name;
  TokenFile file = read_token_file(path);
  check(file.header.fingerprint == tokenizer.fingerprint() && file.header.vocab_size == tokenizer.vocab_size() &&
            file.header.end_of_text == tokenizer.end_of_text(),
        "[tokens] {}: it was written with another tokenizer than the one in the folder; tokenize the text again",
        path.string());
  check(fmt::format("{:016x}", file.header.checksum) == data.get<std::string>("checksum") &&
            file.header.tokens == data.get<int64_t>("tokens"),
        "[tokens] {}: it is not the file that {} was written with; tokenize the text again", path.string(), kDataFile);
  check(file.header.tokens > 0, "[tokens] {}: it holds no tokens", path.string());
  return file;
}

struct Parts {
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenFile train, valid;
  int64_t train_files = 0, valid_files = 0;
  std::string split_rule;
};

Parts read_parts(const fs::path& folder) {
  const fs::path path = folder / kDataFile;
  check(path_exists(path), "[tokens] {}: there is no {}: `alibi tokenize` did not finish, or it is no data folder",
        folder.string(), kDataFile);
  const JsonObject data = read_json_object(path);
  check(data.get<int64_t>("version") == kVersion, "[tokens] {}: version {}, expected {}", path.string(),
        data.get<int64_t>("version"), kVersion);
  Parts parts;
  parts.tokenizer = Tokenizer::load(folder);
  parts.train = read_part(folder, kTrainFile, data.object("train"), *parts.tokenizer);
  parts.valid = read_part(folder, kValidFile, data.object("valid"), *parts.tokenizer);
  parts.train_files = data.object("train").get<int64_t>("documents");
  parts.valid_files = data.object("valid").get<int64_t>("documents");
  parts.split_rule = data.get<std::string>("split_rule");
  return parts;
}

TrainingData to_data(const Parts& parts) {
  return {parts.tokenizer,          parts.train.stream, parts.valid.stream, parts.train.header.bytes,
          parts.valid.header.bytes, parts.train_files,  parts.valid_files,  parts.split_rule};
}

/// Where a new data folder is built: below the old one, so that its files need only be renamed.
class Stage {
 public:
  explicit Stage(const fs::path& folder)
      : folder_(folder), path_(folder / fmt::format("{}{}.0.part", kName, ::getpid())) {
    remove_leftovers();
    make_folder(path_);
  }
  ~Stage() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  const fs::path& path() const { return path_; }

  /// Throws Error if a file would replace something else than a file: a link is followed nowhere here.
  void check_names(const std::set<std::string>& names) const {
    for (const std::string& name : names) {
      std::error_code ignored;
      const fs::file_type type = fs::symlink_status(folder_ / name, ignored).type();
      check(type == fs::file_type::regular || type == fs::file_type::not_found,
            "[tokens] {}: is no regular file; remove it, or write into another folder", (folder_ / name).string());
    }
  }

  /// The names of its files.
  std::set<std::string> names() const {
    std::set<std::string> names;
    std::error_code error;
    for (fs::directory_iterator entry(path_, error), end; !error && entry != end; entry.increment(error)) {
      names.insert(entry->path().filename().string());
    }
    check(!error, "[tokens] {}: {}", path_.string(), error.message());
    return names;
  }

  void move(const std::string& name) const { rename_synced(path_ / name, folder_ / name); }

 private:
  static constexpr const char* kName = "new-tokens.";

  /// Of processes that were killed; the caller holds the folder's lock.
  void remove_leftovers() const {
    std::vector<fs::path> leftovers;
    std::error_code ignored;
    for (fs::directory_iterator entry(folder_, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
      const fs::path name = entry->path().filename();
      if (name.string().starts_with(kName) && is_left_by_write_file(name)) leftovers.push_back(entry->path());
    }
    for (const fs::path& path : leftovers) fs::remove_all(path, ignored);
  }

  fs::path folder_, path_;
};

}  // namespace

bool is_data_folder(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kDataFile, ignored) || fs::exists(folder / kTrainFile, ignored);
}

void prepare_data_folder(const fs::path& folder) {
  make_folder(folder);
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json", "train.json"}) {
    check_usage(!path_exists(folder / name),
                "[tokens] {}: is a model folder, there is a {} in it, and its tokenizer would be replaced; choose "
                "another folder",
                folder.string(), name);
  }
}

void write_data_folder(const fs::path& folder, const Corpus& corpus, const Tokenizer& tokenizer,
                       const TextProgress& progress) {
  prepare_data_folder(folder);
  const FolderLock lock(folder);
  const Stage stage(folder);
  tokenizer.save(stage.path());
  const std::set<std::string> tokenizer_files = stage.names();
  stage.check_names(tokenizer_files);
  stage.check_names({kTrainFile, kValidFile, kDataFile});
  const auto all = static_cast<double>(corpus.train_bytes + corpus.valid_bytes);
  int64_t done = 0;
  const auto on_bytes = [&](int64_t bytes) {
    done += bytes;
    if (progress) progress("tokenize", static_cast<double>(done) / all);
  };
  OrderedJson train = write_part(stage.path() / kTrainFile, corpus.train, tokenizer, on_bytes);
  OrderedJson valid = write_part(stage.path() / kValidFile, corpus.valid, tokenizer, on_bytes);
  write_json(stage.path() / kDataFile, {{"version", kVersion},
                                        {"tokenizer", tokenizer.kind()},
                                        {"vocab_size", tokenizer.vocab_size()},
                                        {"split_rule", corpus.split_rule},
                                        {"train", std::move(train)},
                                        {"valid", std::move(valid)}});
  // From here on nothing is written that could be too much for the disk. Whatever of this has been done when the
  // process is killed, a reader finds that fingerprints and checksums agree, or that they do not.
  for (const std::string& name : tokenizer_files) stage.move(name);
  remove_other_tokenizers(folder, tokenizer_files);
  for (const char* name : {kTrainFile, kValidFile, kDataFile}) stage.move(name);
}

TrainingData read_data_folder(const fs::path& folder) { return to_data(read_parts(folder)); }

TrainingData check_data_folder(const fs::path& folder, const TextProgress& progress) {
  const Parts parts = read_parts(folder);
  const auto all = static_cast<double>(parts.train.header.tokens + parts.valid.header.tokens);
  double before = 0;
  for (const auto& [file, name] : {std::pair{&parts.train, kTrainFile}, std::pair{&parts.valid, kValidFile}}) {
    const auto tokens = static_cast<double>(file->header.tokens);
    check_tokens(*file, folder / name, [&](double fraction) {
      if (progress) progress("check", (before + fraction * tokens) / all);
    });
    before += tokens;
  }
  return to_data(parts);
}

}  // namespace alibi
