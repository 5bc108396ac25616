#include "text/data_folder.h"

#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/atomic_update.h"
#include "core/check.h"
#include "core/files.h"
#include "formats/json.h"
#include "text/stream.h"
#include "text/token_file.h"
#include "text/tokenizer_files.h"

namespace alibi::text {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDataFile = "data.json";
constexpr const char* kTrainFile = "train.tokens";
constexpr const char* kValidFile = "valid.tokens";
constexpr int64_t kDataVersion = 1;

formats::OrderedJson write_part(const fs::path& path, const std::vector<Document>& documents,
                                const Tokenizer& tokenizer, const std::function<void(int64_t)>& on_bytes) {
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

TokenFile read_part(const fs::path& folder, const char* name, const formats::JsonObject& data,
                    const Tokenizer& tokenizer) {
  const fs::path path = folder / name;
  TokenFile file = read_token_file(path);
  check(file.header.fingerprint == tokenizer.fingerprint() && file.header.vocab_size == tokenizer.vocab_size() &&
            file.header.end_of_text == tokenizer.end_of_text(),
        "[tokens] {}: it was written with another tokenizer than the one in the folder; tokenize the text again",
        path.string());
  check(fmt::format("{:016x}", file.header.checksum) == data.get<std::string>("checksum") &&
            file.header.tokens == data.get<int64_t>("tokens"),
        "[tokens] {}: it is not the file that {} was written with; tokenize the text again", path.string(), kDataFile);
  check(file.header.tokens > 0, "[tokens] {}: it contains no tokens", path.string());
  return file;
}

struct Parts {
  TokenFile train, valid;
  TrainingData data;
};

Parts read_parts_of(const fs::path& folder) {
  const fs::path path = folder / kDataFile;
  check(core::path_exists(path),
        "[tokens] {}: there is no {}: `alibi tokenize` did not finish, or this is not a data folder", folder.string(),
        kDataFile);
  const formats::JsonObject data = formats::read_json_object(path);
  check(data.get<int64_t>("version") == kDataVersion, "[tokens] {}: version {}, expected {}", path.string(),
        data.get<int64_t>("version"), kDataVersion);
  Parts parts;
  TrainingData& read = parts.data;
  read.tokenizer = Tokenizer::load(folder);
  parts.train = read_part(folder, kTrainFile, data.object("train"), *read.tokenizer);
  parts.valid = read_part(folder, kValidFile, data.object("valid"), *read.tokenizer);
  read.train = parts.train.stream;
  read.valid = parts.valid.stream;
  read.train_bytes = parts.train.header.bytes;
  read.valid_bytes = parts.valid.header.bytes;
  read.train_files = data.object("train").get<int64_t>("documents");
  read.valid_files = data.object("valid").get<int64_t>("documents");
  read.split_rule = data.get<std::string>("split_rule");
  return parts;
}

Parts read_parts(const fs::path& folder) { return core::read_atomically(folder, kDataFile, read_parts_of); }

}  // namespace

std::set<std::string> data_file_names() {
  std::set<std::string> names = tokenizer_file_names();
  names.insert({kTrainFile, kValidFile, kDataFile});
  return names;
}

bool is_data_folder(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kDataFile, ignored) || fs::exists(folder / kTrainFile, ignored);
}

void prepare_data_folder(const fs::path& folder, bool overwrite) {
  core::make_folder(folder);
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json", "train.json"}) {
    check_usage(!core::path_exists(folder / name),
                "[tokens] {}: is a model folder, there is a {} in it, and its tokenizer would be replaced; choose "
                "another folder",
                folder.string(), name);
  }
  for (const std::string& name : data_file_names()) {
    check_usage(overwrite || !core::path_exists(folder / name),
                "[tokens] {}: there is a {} in it; choose another folder, or replace what it holds with --overwrite",
                folder.string(), name);
  }
}

void write_data_folder(const fs::path& folder, const Corpus& corpus, const Tokenizer& tokenizer,
                       const TextProgress& progress) {
  prepare_data_folder(folder, /*overwrite=*/true);
  const auto all = static_cast<double>(corpus.train_bytes + corpus.valid_bytes);
  int64_t done = 0;
  const auto on_bytes = [&](int64_t bytes) {
    done += bytes;
    if (progress) progress("tokenize", static_cast<double>(done) / all);
  };
  core::update_atomically(folder, data_file_names(), [&](const fs::path& part) {
    tokenizer.save(part);
    formats::OrderedJson train = write_part(part / kTrainFile, corpus.train, tokenizer, on_bytes);
    formats::OrderedJson valid = write_part(part / kValidFile, corpus.valid, tokenizer, on_bytes);
    formats::write_json(part / kDataFile, {{"version", kDataVersion},
                                           {"tokenizer", tokenizer.kind()},
                                           {"vocab_size", tokenizer.vocab_size()},
                                           {"split_rule", corpus.split_rule},
                                           {"train", std::move(train)},
                                           {"valid", std::move(valid)}});
  });
}

TrainingData read_data_folder(const fs::path& folder) { return read_parts(folder).data; }

TrainingData check_data_folder(const fs::path& folder, const TextProgress& progress, DataPart part) {
  Parts parts = read_parts(folder);
  std::vector<std::pair<const TokenFile*, const char*>> files = {{&parts.valid, kValidFile}};
  if (part == DataPart::both) files.emplace_back(&parts.train, kTrainFile);
  double all = 0, before = 0;
  for (const auto& [file, name] : files) all += static_cast<double>(file->header.tokens);
  for (const auto& [file, name] : files) {
    const auto tokens = static_cast<double>(file->header.tokens);
    check_tokens(*file, folder / name, [&](double fraction) {
      if (progress) progress("check", (before + fraction * tokens) / all);
    });
    before += tokens;
  }
  return std::move(parts.data);
}

}  // namespace alibi::text
