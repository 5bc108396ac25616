// The expected values are those of the Hugging Face tokenizers library, version 0.23.3.
#include "text/tokenizers/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "formats/json.h"
#include "testing.h"
#include "text/tokenizers/decoders.h"
#include "text/tokenizers/normalizers.h"
#include "text/tokenizers/pre_tokenizers.h"

namespace alibi::text::tokenizers {
namespace {

using test::expect_error;
using Ids = std::vector<int32_t>;
using Strings = std::vector<std::string>;

Part object(const std::string& json) { return {formats::Json::parse(json), "file: "}; }

Pipeline with_model(const std::string& model) { return Pipeline(object(R"({"model": )" + model + "}")); }

struct Case {
  const char* json;
  std::string text, expected;
};

TEST(TokenizerJson, Normalizers) {
  const Case cases[] = {
      {R"({"type": "NFC"})",
       "e\xcc\x81"
       "a \xe2\x84\xab",
       "\xc3\xa9"
       "a \xc3\x85"},
      {R"({"type": "NFD"})", "\xc3\xa9 \xc3\x85", "e\xcc\x81 A\xcc\x8a"},
      {R"({"type": "NFKC"})", "\xef\xac\x81 \xc2\xbd \xef\xbc\xa1",
       "fi 1\xe2\x81\x84"
       "2 A"},
      {R"({"type": "NFKD"})", "\xef\xac\x81 \xc3\xa9", "fi e\xcc\x81"},
      {R"({"type": "Lowercase"})", "\xc3\x80\xce\xa3\xc4\xb0X", "\xc3\xa0\xcf\x83i\xcc\x87x"},
      {R"({"type": "Strip", "strip_left": true, "strip_right": false})",
       " \xe3\x80\x80"
       "a b ",
       "a b "},
      {R"({"type": "Strip", "strip_left": true, "strip_right": true})", " \t ", ""},
      {R"({"type": "Strip", "strip_left": true, "strip_right": true})", "\xc2\xa0\xc3\xa9 \xe3\x80\x80", "\xc3\xa9"},
      {R"({"type": "StripAccents"})",
       "e\xcc\x81"
       "a\xcc\x88x\xe0\xa4\xbe",
       "eax"},
      {R"({"type": "Replace", "pattern": {"String": "."}, "content": "::"})", "a.b..c", "a::b::::c"},
      {R"({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})", "a  b   c d", "a b c d"},
      {R"({"type": "Replace", "pattern": {"Regex": "x*"}, "content": "-"})", "axxb", "-a-b-"},
      {R"({"type": "Prepend", "prepend": "▁"})", "ab",
       "\xe2\x96\x81"
       "ab"},
      {R"({"type": "Prepend", "prepend": "▁"})", "", ""},
      {R"({"type": "Nmt"})",
       "a\xe2\x80\x8b"
       "b\x01"
       "c\n\xe2\x96\x81",
       "a bc  "},
      {R"({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true})",
       "H\xc3\xa9\xc2\xa0\x07L\xe4\xb8\xad\xf0\xab\xa0\xa1\xef\xbf\xbd", "he l \xe4\xb8\xad \xf0\xab\xa0\xa1"},
      {R"({"type": "BertNormalizer", "clean_text": false, "handle_chinese_chars": false, "strip_accents": true, "lowercase": false})",
       "\xc3\x89\tx", "E\tx"},
      {R"({"type": "ByteLevel"})", " \xc3\xa9", "\xc4\xa0\xc3\x83\xc2\xa9"},
      {R"({"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]})",
       "\xc3\x89"
       "A",
       "ea"},
  };
  for (const auto& [json, text, expected] : cases) {
    EXPECT_EQ(make_normalizer(object(json)).apply(text), expected) << json;
  }
}

TEST(TokenizerJson, PreTokenizers) {
  struct Split {
    const char* json;
    std::string text;
    Strings expected;
  };
  const Split cases[] = {
      {R"({"type": "ByteLevel", "trim_offsets": true, "add_prefix_space": true, "use_regex": true})",
       "it's a  12\xc3\xa9!\n\n x",
       {"\xc4\xa0it", "'s",
        "\xc4\xa0"
        "a",
        "\xc4\xa0",
        "\xc4\xa0"
        "12",
        "\xc3\x83\xc2\xa9", "!", "\xc4\x8a\xc4\x8a", "\xc4\xa0x"}},
      {R"({"type": "ByteLevel", "trim_offsets": true, "add_prefix_space": false, "use_regex": false})",
       "a b",
       {"a\xc4\xa0"
        "b"}},
      {R"({"type": "Whitespace"})", "ab c_d,!! \xc3\xa9\xcc\x81 x", {"ab", "c_d", ",!!", "\xc3\xa9\xcc\x81", "x"}},
      {R"({"type": "WhitespaceSplit"})",
       " a\xe3\x80\x80"
       "b, c",
       {"a", "b,", "c"}},
      {R"({"type": "BertPreTokenizer"})", "a,b!! c", {"a", ",", "b", "!", "!", "c"}},
      {R"({"type": "Punctuation", "behavior": "Contiguous"})", "a,!b.c", {"a", ",!", "b", ".", "c"}},
      {R"({"type": "Punctuation", "behavior": "Isolated"})", "a,!b", {"a", ",", "!", "b"}},
      {R"({"type": "Digits", "individual_digits": true})",
       "a12\xc2\xbd"
       "b",
       {"a", "1", "2", "\xc2\xbd", "b"}},
      {R"({"type": "Digits", "individual_digits": false})",
       "a12\xc2\xbd"
       "b",
       {"a", "12\xc2\xbd", "b"}},
      {R"({"type": "CharDelimiterSplit", "delimiter": "-"})", "a-b--c", {"a", "b", "c"}},
      {R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true})",
       "a b  c",
       {"\xe2\x96\x81"
        "a",
        "\xe2\x96\x81"
        "b",
        "\xe2\x96\x81",
        "\xe2\x96\x81"
        "c"}},
      {R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": false})",
       " a b",
       {"\xe2\x96\x81"
        "a\xe2\x96\x81"
        "b"}},
      {R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true})",
       "a b",
       {"\xe2\x96\x81"
        "a",
        "\xe2\x96\x81"
        "b"}},
      {R"({"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": true})", "a b", {"_a", "_b"}},
      {R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "Removed", "invert": false})",
       "-a--b-c-",
       {"a", "b", "c"}},
      {R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "Removed", "invert": true})",
       "-a--b-c-",
       {"-", "-", "-", "-", "-"}},
      {R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "Isolated", "invert": false})",
       "-a--b-c-",
       {"-", "a", "-", "-", "b", "-", "c", "-"}},
      {R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "Isolated", "invert": true})",
       "-a--b-c-",
       {"-", "a", "-", "-", "b", "-", "c", "-"}},
      {R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "Contiguous", "invert": false})",
       "-a--b-c-",
       {"-", "a", "--", "b", "-", "c", "-"}},
      {R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "Contiguous", "invert": true})",
       "-a--b-c-",
       {"-", "a", "--", "b", "-", "c", "-"}},
      {R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "MergedWithPrevious", "invert": false})",
       "-a--b-c-",
       {"-", "a-", "-", "b-", "c-"}},
      {R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "MergedWithPrevious", "invert": true})",
       "-a--b-c-",
       {"-a", "-", "-b", "-c", "-"}},
      {R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "MergedWithNext", "invert": false})",
       "-a--b-c-",
       {"-a", "-", "-b", "-c", "-"}},
      {R"({"type": "Split", "pattern": {"String": "-"}, "behavior": "MergedWithNext", "invert": true})",
       "-a--b-c-",
       {"-", "a-", "-", "b-", "c-"}},
      {R"({"type": "Split", "pattern": {"Regex": "(?=b)|x"}, "behavior": "Isolated", "invert": false})",
       "abxbb",
       {"a", "b", "x", "b", "b"}},
      {R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true}, {"type": "ByteLevel", "trim_offsets": true, "add_prefix_space": false, "use_regex": true}]})",
       "ab 12 c",
       {"ab", "\xc4\xa0", "1", "2",
        "\xc4\xa0"
        "c"}},
  };
  for (const auto& [json, text, expected] : cases) {
    Strings words;
    make_pre_tokenizer(object(json))(text, true, [&](std::string_view word, bool) { words.emplace_back(word); });
    EXPECT_EQ(words, expected) << json;
  }
}

TEST(TokenizerJson, Decoders) {
  struct Joined {
    const char* json;
    Strings tokens;
    std::string expected;
  };
  const Joined cases[] = {
      {R"({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true})",
       {"\xc4\xa0"
        "a",
        "\xc3\x83\xc2\xa9", "\xc3\x83", "\xe2\x98\x83"},
       " a\xc3\xa9\xef\xbf\xbd\xe2\x98\x83"},
      {R"({"type": "ByteFallback"})",
       {"a", "<0xC3>", "<0xA9>", "b", "<0xC3>", "<0xFF>"},
       "a\xc3\xa9"
       "b\xef\xbf\xbd\xef\xbf\xbd"},
      {R"({"type": "WordPiece", "prefix": "##", "cleanup": true})",
       {"it", "'s", "un", "##able", ".", "do", "not"},
       "it's unable. do not"},
      {R"({"type": "WordPiece", "prefix": "##", "cleanup": false})", {"a", "##b", "."}, "ab ."},
      {R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true})",
       {"\xe2\x96\x81"
        "a",
        "\xe2\x96\x81"
        "b\xe2\x96\x81"},
       "a b "},
      {R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never", "split": true})",
       {"\xe2\x96\x81"
        "a",
        "\xe2\x96\x81"
        "b"},
       " a b"},
      {R"({"type": "BPEDecoder", "suffix": "</w>"})", {"a", "b</w>", "c</w>"}, "ab c"},
      {R"({"type": "Replace", "pattern": {"String": "▁"}, "content": " "})",
       {"\xe2\x96\x81"
        "a",
        "b\xe2\x96\x81\xe2\x96\x81"},
       " ab  "},
      {R"({"type": "Fuse"})", {"a", "b"}, "ab"},
      {R"({"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})",
       {"\xe2\x96\x81\xe2\x96\x81"
        "a",
        "<0x41>",
        "\xe2\x96\x81"
        "b"},
       " aA b"},
  };
  for (const auto& [json, tokens, expected] : cases) {
    Strings changed = tokens;
    make_decoder(object(json))(changed, false);
    std::string text;
    for (const std::string& token : changed) text += token;
    EXPECT_EQ(text, expected) << json;
  }
}

TEST(TokenizerJson, DecodersKeepTheBytesOfACharacterThatIsNotWhole) {
  for (const char* json : {R"({"type": "ByteLevel"})", R"({"type": "ByteFallback"})"}) {
    const bool level = std::string_view(json).find("Level") != std::string_view::npos;
    Strings tokens = {level ? "\xc3\x83" : "<0xC3>"};
    make_decoder(object(json))(tokens, true);
    EXPECT_EQ(tokens, Strings{"\xc3"}) << json;
  }
}

struct Encoded {
  std::string text;
  Ids ids;
};

TEST(TokenizerJson, AddedTokens) {
  const Pipeline tokenizer(
      object(R"({"version": "1.0", "added_tokens": [{"id": 14, "content": "<s>", "normalized": false, "special": true},
    {"id": 15, "content": "<L>", "lstrip": true, "normalized": false},
    {"id": 16, "content": "<R>", "rstrip": true, "normalized": false},
    {"id": 17, "content": "ab", "single_word": true, "normalized": false},
    {"id": 18, "content": "AB", "normalized": true},
    {"id": 19, "content": "<s><s>", "normalized": false, "special": true}], 
    "normalizer": {"type": "Lowercase"}, 
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "x": 4, "y": 5, "z": 6, " ": 7, "<": 8, ">": 9, "/": 10, "s": 11, "A": 12, "B": 13}, "merges": []}})"));
  const Encoded cases[] = {
      {"a<s>b", {0, 14, 1}},
      {"a  <L>  b", {0, 15, 7, 7, 1}},
      {"a  <R>  b", {0, 7, 7, 16, 1}},
      {"ab abc xab ab", {17, 7, 18, 2, 7, 4, 18, 7, 17}},
      {"xaBx", {4, 18, 4}},
      {"<s><s><s>", {19, 14}},
      {"<R> <L>", {16, 15}},
  };
  for (const auto& [text, ids] : cases) EXPECT_EQ(tokenizer.encode(text, true), ids) << text;
  EXPECT_EQ(tokenizer.encode("a<s>b", false), (Ids{0, 8, 11, 9, 1}));  // the text of a special token
  EXPECT_EQ(tokenizer.decode(Ids{0, 14, 18, 1}, false, false), "a <s> ab b");
  EXPECT_EQ(tokenizer.decode(Ids{0, 14, 18, 1}, true, false), "a ab b");
  EXPECT_EQ(tokenizer.end(), 20);
}

TEST(TokenizerJson, ASingleWordStandsBesideNoWordCharacter) {
  const Pipeline pipeline(object(R"({"model": {"type": "BPE", "vocab": {"x": 0}, "merges": []}, "added_tokens": [
      {"id": 1, "content": "ab", "single_word": true, "lstrip": false, "rstrip": false, "normalized": false,
       "special": false}]})"));
  const auto is_found = [&](const std::string& text) {
    const Ids ids = pipeline.encode(text, true);
    return std::find(ids.begin(), ids.end(), 1) != ids.end();
  };
  // U+E9, U+436, U+301, U+663 (a digit), U+4E2D, U+AA, U+2167 (a numeral), U+24D0 (a letter in a circle), U+203F (a
  // tie)
  for (const char* word : {"_", "1", "a", "\xc3\xa9", "\xd0\xb6", "\xcc\x81", "\xd9\xa3", "\xe4\xb8\xad", "\xc2\xaa",
                           "\xe2\x85\xa7", "\xe2\x93\x90", "\xe2\x80\xbf", "\xe2\x80\x8d"}) {
    EXPECT_FALSE(is_found(std::string(word) + "ab")) << word;
    EXPECT_FALSE(is_found(std::string("ab") + word)) << word;
  }
  // U+B2, U+1F600, U+3000
  for (const char* other : {"", " ", "-", "\xc2\xb2", "\xf0\x9f\x98\x80", "\xe3\x80\x80"}) {
    EXPECT_TRUE(is_found(other + std::string("ab") + other)) << other;
  }
}

TEST(TokenizerJson, Models) {
  struct ModelCase {
    const char* json;
    std::vector<Encoded> texts;
  };
  const ModelCase cases[] = {
      {R"({"type": "BPE", "unk_token": "?", "fuse_unk": false, "byte_fallback": false, "vocab": {"?": 0, "a": 1, "b": 2, "ab": 3, "abb": 4}, "merges": ["a b", "ab b"]})",
       {{"abb", {4}}, {"bab", {2, 3}}, {"axyb", {1, 0, 0, 2}}, {"ab?", {3, 0}}}},
      {R"({"type": "BPE", "unk_token": "?", "fuse_unk": true, "vocab": {"?": 0, "a": 1, "b": 2}, "merges": []})",
       {{"axyb", {1, 0, 2}}}},
      {R"({"type": "BPE", "byte_fallback": true, "vocab": {"<0xC3>": 0, "<0xA9>": 1, "a": 2}, "merges": []})",
       {{"a\xc3\xa9x", {2, 0, 1}}}},
      {R"({"type": "BPE", "continuing_subword_prefix": "##", "end_of_word_suffix": "</w>", "vocab": {"a": 0, "##b": 1, "##b</w>": 2, "a</w>": 3, "a##b": 4, "ab": 5, "ab</w>": 6}, "merges": ["a ##b", "a ##b</w>"]})",
       {{"ab", {6}}, {"a", {3}}, {"abb", {5, 2}}}},
      {R"({"type": "BPE", "ignore_merges": true, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": []})",
       {{"ab", {2}}, {"abb", {0, 1, 1}}}},
      {R"({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 5, "vocab": {"[UNK]": 0, "un": 1, "##able": 2, "##a": 3, "##b": 4, "u": 5}})",
       {{"unab", {1, 3, 4}}, {"unable", {0}}, {"unac", {0}}, {"u", {5}}}},
      {R"({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["b", -1.5], ["ab", -2.0], ["abc", -9.0]], "byte_fallback": false})",
       {{"abab", {3, 3}}, {"xxaxx", {0, 1, 0}}, {"abc", {4}}}},
      {R"({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0], ["<0xC3>", -5.0], ["<0xA9>", -5.0]], "byte_fallback": true})",
       {{"a\xc3\xa9"
         "a",
         {1, 2, 3, 1}},
        {"a\xc3\xa8", {1, 0}}}},
  };
  for (const auto& [json, texts] : cases) {
    const Pipeline tokenizer = with_model(json);
    for (const auto& [text, ids] : texts) EXPECT_EQ(tokenizer.encode(text, true), ids) << json << " " << text;
  }
}

TEST(TokenizerJson, PostProcessorsFrameTextsAndPairs) {
  struct Frame {
    const char* json;
    Ids single, pair, types, bare_types;
  };
  const Frame cases[] = {
      {R"({"type": "ByteLevel"})", {7}, {7, 8, 8}, {0, 1, 1}, {0, 1, 1}},
      {R"({"type": "BertProcessing", "sep": ["s", 2], "cls": ["c", 1]})",
       {1, 7, 2},
       {1, 7, 2, 8, 8, 2},
       {0, 0, 0, 1, 1, 1},
       {0, 1, 1}},
      {R"({"type": "RobertaProcessing", "sep": ["s", 2], "cls": ["c", 1], "trim_offsets": true,
           "add_prefix_space": false})",
       {1, 7, 2},
       {1, 7, 2, 2, 8, 8, 2},
       {0, 0, 0, 0, 0, 0, 0},
       {0, 0, 0}},
      {R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}},
           {"SpecialToken": {"id": "e", "type_id": 0}}], "pair": [{"Sequence": {"id": "B", "type_id": 1}},
           {"SpecialToken": {"id": "e", "type_id": 5}}, {"Sequence": {"id": "A", "type_id": 0}}],
           "special_tokens": {"e": {"id": "e", "ids": [3, 4], "tokens": ["x", "y"]}}})",
       {7, 3, 4},
       {8, 8, 3, 4, 7},
       {1, 1, 5, 5, 0},
       {1, 1, 0}},
  };
  for (const auto& [json, single, pair, types, bare_types] : cases) {
    const PostProcessor processor(object(json), 10);
    EXPECT_EQ(processor.apply({7}, std::nullopt, true).ids, single) << json;
    EXPECT_EQ(processor.apply({7}, std::nullopt, false).ids, Ids{7}) << json;
    EXPECT_EQ(processor.apply({7}, Ids{8, 8}, true).ids, pair) << json;
    EXPECT_EQ(processor.apply({7}, Ids{8, 8}, true).types, types) << json;
    EXPECT_EQ(processor.apply({7}, Ids{8, 8}, false).types, bare_types) << json;
  }
}

TEST(TokenizerJson, WhatCannotBeReadIsRefusedByName) {
  const std::string model = R"("model": {"type": "BPE", "vocab": {"a": 0}, "merges": []})";
  const std::pair<std::string, const char*> cases[] = {
      {R"({})", "file: there is no model"},
      {R"({"model": {"type": "Frob"}})", "file: model: found the model 'Frob', expected BPE"},
      {R"({"model": {"type": "BPE"}})", "there is no vocab"},
      {R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})", "the id of 'a' is -1"},
      {R"({"model": {"type": "BPE", "vocab": {"a": 4294967296}, "merges": []}})", "the id of 'a' is 4294967296"},
      {R"({"model": {"type": "BPE", "vocab": {"a": 1.5}, "merges": []}})", "is 1.5, expected an integer"},
      {R"({"model": {"type": "BPE", "vocab": {"a": 1, "b": 1}, "merges": []}})", "both 'a' and 'b' have the id 1"},
      {R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]}})", "but 'aa' is not in vocab"},
      {R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}})", "one space between them"},
      {R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1}})", "a dropout of 0.1"},
      {R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "?"}})", "'?' is not in vocab"},
      {R"({"model": {"type": "Unigram", "vocab": []}})", "there is no vocab"},
      {R"({"model": {"type": "Unigram", "vocab": [["a", -1]], "unk_id": 1}})", "unk_id"},
      {R"({"normalizer": {"type": "Frob"}, )" + model + "}", "file: normalizer: found the normalizer 'Frob'"},
      {R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Frob"}]}, )" + model + "}",
       "file: pre_tokenizer.pretokenizers[0]: found the pre-tokenizer 'Frob'"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}, )" + model + "}",
       "'(' is not a regular expression"},
      {R"({"decoder": {"type": "CTC"}, )" + model + "}", "file: decoder: found the decoder 'CTC'"},
      {R"({"post_processor": {"type": "Frob"}, )" + model + "}", "found the post-processor 'Frob'"},
      {R"({"post_processor": {"type": "BertProcessing", "sep": ["s", 2], "cls": ["c", 1]}, )" + model + "}",
       "the id of a special token is 1, expected 0 to 0"},
      {R"({"added_tokens": [{"id": 5, "content": "<x>"}], )" + model + "}", "'<x>' has the id 5, expected 1"},
  };
  for (const auto& [json, message] : cases) {
    expect_error([&, text = json] { Pipeline(object(text)); }, message);
  }
}

TEST(TokenizerJson, AnExpressionThatTriesTooMuchEnds) {
  const Pipeline tokenizer(object(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "pre_tokenizer":
      {"type": "Split", "pattern": {"Regex": "(a|a|aa)+$"}, "behavior": "Isolated", "invert": false}})"));
  EXPECT_EQ(tokenizer.encode("aa", true), (Ids{0, 0}));
  expect_error([&] { tokenizer.encode(std::string(60, 'a') + "b", true); },
               "the expression cannot be used on this text");
}

}  // namespace
}  // namespace alibi::text::tokenizers
