// A file of tokens by itself or as part of a data folder, and data.json.
#include <cstring>

#include "alibi/tokenizer.h"
#include "harness.h"
#include "json_mutator.h"
#include "target.h"
#include "temporary_folder.h"
#include "text/data_folder.h"
#include "text/hash.h"
#include "text/token_file.h"

namespace alibi::fuzz {
namespace {

enum Kind : unsigned {
  tokens,
  sealed,  ///< the same with the checksum of its header made to fit: what stands behind it is read, too
  part,    ///< train.tokens of a data folder
  data,    ///< data.json
  kinds
};

constexpr const char* names[] = {"file.tokens", "file.tokens", "train.tokens", "data.json"};

Files good_files() {
  const test::TemporaryFolder folder;
  std::vector<text::Document> train, valid;
  train.emplace_back("train.txt", "train.txt", "the cat sat on the mat");
  valid.emplace_back("valid.txt", "valid.txt", "the mat");
  const text::Corpus corpus = text::split_corpus(std::move(train), std::move(valid));
  text::write_data_folder(folder.path(), corpus, ByteTokenizer());
  return files_of(folder.path());
}

std::string with_checksum(std::string file) {
  constexpr size_t at = 56;
  if (file.size() < at + sizeof(uint64_t)) return file;
  const uint64_t checksum = text::fnv1a(std::string_view(file).substr(0, at));
  std::memcpy(file.data() + at, &checksum, sizeof checksum);
  return file;
}

void read_tokens(const std::filesystem::path& path) { text::check_tokens(text::read_token_file(path), path); }

bool run(std::string_view input) {
  static const Files good = good_files();
  static const test::TemporaryFolder folder;
  static const bool ready = (write_files(folder.path(), good), true);
  demand(ready, "the files beside are there");
  const Choice choice = choose(input, kinds);
  const std::string path = folder / names[choice.kind];
  std::string content(choice.content);
  write_file(path, choice.kind == sealed ? with_checksum(std::move(content)) : content);
  const bool alone = choice.kind == tokens || choice.kind == sealed;
  const bool taken =
      takes(input, folder.path(), [&] { alone ? read_tokens(path) : void(text::check_data_folder(folder.path())); });
  if (!alone) write_file(path, good.at(names[choice.kind]));
  return taken;
}

std::vector<Seed> seeds() {
  const Files good = good_files();
  return {{"tokens", chosen(tokens, good.at("train.tokens"))},
          {"sealed", chosen(sealed, good.at("train.tokens"))},
          {"part", chosen(part, good.at("train.tokens"))},
          {"data", chosen(data, good.at("data.json"))}};
}

}  // namespace

Target token_file() { return {"token_file", run, seeds, mutate_json}; }

}  // namespace alibi::fuzz
