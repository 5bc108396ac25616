#include "text/word_tokenizer.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/check.h"
#include "core/files.h"
#include "core/format.h"
#include "formats/json.h"
#include "text/hash.h"
#include "text/lines.h"
#include "text/tokenizer_files.h"
#include "text/tokenizers/unicode.h"
#include "text/units.h"

namespace alibi::text {
namespace {

constexpr std::array<const char*, 4> kNames = {"<s>", "<pad>", "</s>", "<unk>"};
constexpr int32_t kEnd = 2, kUnknown = 3;
constexpr int64_t kMultiple = 8;  // fairseq pads its dictionaries to this
constexpr int64_t kMaxWords = int64_t{1} << 28;

/// Length of the whitespace character that begins at `at`, or 0: a character for which Python's str.isspace() is true,
/// in UTF-8.
size_t whitespace_length(std::string_view text, size_t at) {
  const tokenizers::Character character = tokenizers::character_at(text, at);
  return tokenizers::is_python_space(character.code) ? character.length : 0;
}

/// Calls word(text) and line_feed() in the order of the text.
template <class Word, class LineFeed>
void split_unit(std::string_view text, const Word& word, const LineFeed& line_feed) {
  size_t begin = 0;  // start of the word
  for (size_t at = 0; at < text.size();) {
    const size_t space = whitespace_length(text, at);
    if (space == 0) {
      ++at;
      continue;
    }
    if (at > begin) word(text.substr(begin, at - begin));
    if (text[at] == '\n') line_feed();
    at += space;
    begin = at;
  }
  if (begin < text.size()) word(text.substr(begin));
}

/// Counts unit by unit. A word of thousands of bytes may be split.
template <class Word, class LineFeed>
void split_words(std::string_view text, const Word& word, const LineFeed& line_feed) {
  while (!text.empty()) {
    const size_t length = unit_length(text);
    split_unit(text.substr(0, length), word, line_feed);
    text.remove_prefix(length);
  }
}

bool holds_whitespace(std::string_view word) {
  for (size_t at = 0; at < word.size(); ++at) {
    if (whitespace_length(word, at) > 0) return true;
  }
  return false;
}

}  // namespace

WordTokenizer::WordTokenizer(std::vector<WordCount> words) : words_(std::move(words)) {
  check(static_cast<int64_t>(words_.size()) <= kMaxWords, "[tokenizer] {} words, expected at most {}", words_.size(),
        kMaxWords);
  ids_.reserve(words_.size() + 1);
  for (size_t i = 0; i < words_.size(); ++i) {
    const std::string& word = words_[i].first;
    check(!word.empty() && !holds_whitespace(word), "[tokenizer] word {} is '{}': empty, or with whitespace inside",
          i + 1, word);
    check(std::find(kNames.begin(), kNames.end(), word) == kNames.end(),
          "[tokenizer] word {} is {}, which has its own id", i + 1, word);
    const bool first_time = ids_.emplace(word, kSpecials + static_cast<int32_t>(i)).second;
    check(first_time, "[tokenizer] word {}, '{}', occurs twice", i + 1, word);
  }
}

std::shared_ptr<const WordTokenizer> WordTokenizer::load(const std::filesystem::path& file) {
  const std::string text = core::read_file(file, kMaxTokenizerBytes);
  std::vector<WordCount> words;
  each_line(text, [&](std::string_view whole, int64_t line) {
    const size_t space = whole.rfind(' ');
    int64_t count = -1;
    if (space != std::string_view::npos && !core::parse_number(whole.substr(space + 1), count)) count = -1;
    check(count >= 0, "[tokenizer] {}: line {} is '{}', expected a word, a space and its count", file.string(), line,
          whole.substr(0, 60));
    words.emplace_back(whole.substr(0, space), count);
  });
  try {
    return std::make_shared<WordTokenizer>(std::move(words));
  } catch (const Error& error) {
    fail("{} ({})", error.what(), file.string());
  }
}

uint64_t WordTokenizer::fingerprint() const {
  uint64_t hash = fnv1a("words");
  for (const auto& [word, count] : words_) hash = fnv1a("\n", fnv1a(word, hash));
  return hash;
}

std::vector<int32_t> WordTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  split_words(
      text,
      [&](std::string_view word) {
        const auto found = ids_.find(word);
        ids.push_back(found == ids_.end() ? kUnknown : found->second);
      },
      [&] { ids.push_back(kEnd); });
  return ids;
}

std::string WordTokenizer::decode_known(std::span<const int32_t> ids, const DecodeOptions*) const {
  std::string text;
  bool after_word = false;
  for (const int32_t id : ids) {
    if (id == kEnd) {
      text += '\n';
      after_word = false;
    } else if (id >= kUnknown) {
      if (after_word) text += ' ';
      text += id == kUnknown ? kNames[kUnknown] : words_[static_cast<size_t>(id - kSpecials)].first;
      after_word = true;
    }
  }
  return text;
}

std::string WordTokenizer::file_text() const {
  std::string text;
  for (const auto& [word, count] : words_) text += fmt::format("{} {}\n", word, count);
  return text;
}

void WordTokenizer::save(const std::filesystem::path& folder) const {
  core::write_file(folder / kWordsFile, file_text());
  // Sorted keys, because a lookup among unsorted keys visits all of them.
  formats::Json vocab = formats::Json::object();
  formats::Json added = formats::Json::array();
  int32_t id = 0;
  for (const char* name : kNames) {
    added.push_back(added_token(id, name, true));
    vocab[name] = id++;
  }
  for (const auto& [word, count] : words_) vocab[word] = id++;
  const formats::Json json = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", std::move(added)},
      {"normalizer", {{"type", "Replace"}, {"pattern", {{"String", "\n"}}}, {"content", " </s> "}}},
      {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
      {"post_processor", nullptr},
      {"decoder", nullptr},
      {"model", {{"type", "WordLevel"}, {"vocab", std::move(vocab)}, {"unk_token", kNames[kUnknown]}}}};
  core::write_file(folder / kHuggingFaceFile, json.dump(0, ' ', false, formats::Json::error_handler_t::replace) + "\n");
  formats::write_json(folder / kTokenizerConfigFile, {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                                      {"bos_token", kNames[kEnd]},
                                                      {"eos_token", kNames[kEnd]},
                                                      {"unk_token", kNames[kUnknown]},
                                                      {"pad_token", kNames[1]},
                                                      {"clean_up_tokenization_spaces", false}});
  remove_other_tokenizers(folder, {kWordsFile, kHuggingFaceFile});
}

void WordCounter::add(std::string_view text) {
  std::unordered_map<std::string_view, int64_t> local;  // most words repeat, so fewer strings are allocated
  split_words(
      text, [&](std::string_view word) { ++local[word]; }, [] {});
  for (const auto& [word, count] : local) counts_[std::string(word)] += count;
}

void WordCounter::add(const WordCounter& other) {
  for (const auto& [word, count] : other.counts_) counts_[word] += count;
}

std::vector<WordCount> WordCounter::vocabulary(int64_t vocab_size, int64_t min_count) const {
  constexpr int64_t specials = kNames.size();
  check_usage(vocab_size == 0 || vocab_size > specials,
              "[tokenizer] the vocabulary size is {}, expected more than the {} of the special tokens", vocab_size,
              specials);
  std::vector<WordCount> words;
  for (const auto& [word, count] : counts_) {
    if (count >= min_count && std::find(kNames.begin(), kNames.end(), word) == kNames.end()) {
      words.emplace_back(word, count);
    }
  }
  std::sort(words.begin(), words.end(), [](const WordCount& a, const WordCount& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  if (vocab_size > 0 && static_cast<int64_t>(words.size()) > vocab_size - specials) {
    words.resize(static_cast<size_t>(vocab_size - specials));
  }
  for (int placeholder = 0; (static_cast<int64_t>(words.size()) + specials) % kMultiple != 0;) {
    std::string name = fmt::format("madeupword{:04}", placeholder++);
    const bool taken = std::any_of(words.begin(), words.end(), [&](const WordCount& w) { return w.first == name; });
    if (!taken) words.emplace_back(std::move(name), 0);
  }
  return words;
}

}  // namespace alibi::text
