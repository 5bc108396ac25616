// tokenizer.json, and dict.txt, the other tokenizer file that is text.
#include <algorithm>
#include <utility>

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

/// Small tokenizers with as many parts as there are.
constexpr std::pair<const char*, const char*> kTokenizers[] = {
    {"bpe", R"({"added_tokens": [{"id": 5, "content": "</s>", "special": true, "normalized": false},
 {"id": 6, "content": "<m>", "lstrip": true, "rstrip": true, "single_word": true, "normalized": true}],
 "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " +"},
 "content": " "}, {"type": "Nmt"}]}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern":
 {"Regex": "[0-9][0-9]"}, "behavior": "MergedWithNext", "invert": false}, {"type": "Digits", "individual_digits": true},
 {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "ByteLevel", "add_prefix_space": true}]},
 "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 5], "cls": ["</s>", 5]},
 "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Strip", "content": " ", "start": 1,
 "stop": 0}, {"type": "Fuse"}]}, "model": {"type": "BPE", "unk_token": "a", "fuse_unk": true, "byte_fallback": true,
 "vocab": {"a": 0, "b": 1, "ab": 2, "<0x41>": 3, "t": 4}, "merges": ["a b"]}})"},
    {"wordpiece", R"({"added_tokens": [{"id": 2, "content": "[SEP]", "special": true, "normalized": false}],
 "normalizer": {"type": "BertNormalizer"}, "pre_tokenizer": {"type": "BertPreTokenizer"}, "post_processor":
 {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]",
 "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
 "special_tokens": {"[SEP]": {"id": "[SEP]", "ids": [2], "tokens": ["[SEP]"]}}}, "decoder": {"type": "WordPiece"},
 "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "t": 1, "[SEP]": 2, "##y": 3}}})"},
    {"unigram", R"({"added_tokens": [{"id": 1, "content": "</s>", "special": true, "normalized": false}],
 "normalizer": {"type": "Precompiled", "precompiled_charsmap": "CAAAAAAAAAAAAAAAYQA="}, "pre_tokenizer":
 {"type": "Metaspace", "prepend_scheme": "first"}, "decoder": {"type": "Metaspace"}, "model": {"type": "Unigram",
 "unk_id": 0, "vocab": [["<unk>", 0], ["</s>", 0], ["t", -1.5], ["ty", -2], ["y", -3.25]]}})"},
};

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
  std::vector<Seed> result = {{"byte", chosen(json, byte)},
                              {"words", chosen(words, files_of(folder.path()).at("dict.txt"))}};
  for (const auto& [name, text] : kTokenizers) result.push_back({name, chosen(json, text)});
  return result;
}

}  // namespace

Target tokenizer_json() { return {"tokenizer_json", run, seeds, mutate_json}; }

}  // namespace alibi::fuzz
