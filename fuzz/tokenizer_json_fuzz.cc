// tokenizer.json, and dict.txt, the other tokenizer file that is text.
#include <algorithm>

#include "alibi/tokenizer.h"
#include "harness.h"
#include "json_mutator.h"
#include "target.h"
#include "temporary_folder.h"
#include "text/word_tokenizer.h"
#include "tokenizers.h"

namespace alibi::fuzz {
namespace {

enum Kind : unsigned { json, words, kinds };

bool run(std::string_view input) {
  static const test::TemporaryFolder folders;
  const Choice choice = choose(input, kinds);
  const std::filesystem::path folder = folders / (choice.kind == words ? "words" : "json");
  std::filesystem::create_directory(folder);
  write_file(folder / (choice.kind == words ? "dict.txt" : "tokenizer.json"), choice.content);
  const std::string_view text = choice.content.substr(0, 1024);  // holds words of the vocabulary
  return takes(input, folder, [&] { use_tokenizer(folder, text); });
}

std::vector<Seed> seeds() {
  const test::TemporaryFolder folder;
  ByteTokenizer().save(folder.path());
  const std::string byte = files_of(folder.path()).at("tokenizer.json");
  text::WordTokenizer({{"the", 7}, {"caf\xc3\xa9", 2}, {"madeupword0000", 0}}).save(folder.path());
  return {{"byte", chosen(json, byte)}, {"words", chosen(words, files_of(folder.path()).at("dict.txt"))}};
}

}  // namespace

Target tokenizer_json() { return {"tokenizer_json", run, seeds, mutate_json}; }

}  // namespace alibi::fuzz
