#include "text/tokenizers/pre_tokenizers.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "text/tokenizers/byte_level.h"
#include "text/tokenizers/json_part.h"
#include "text/tokenizers/regex.h"
#include "text/tokenizers/unicode.h"

namespace alibi::text::tokenizers {
namespace {

constexpr const char* kPreTokenizers =
    "Sequence, ByteLevel, Split, Whitespace, WhitespaceSplit, BertPreTokenizer, Punctuation, Digits, "
    "CharDelimiterSplit or Metaspace";
/// The expression of GPT-2.
constexpr std::string_view kByteLevelWords =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// What happens to a matching part of the text.
enum class Behavior { removed, isolated, contiguous, merged_with_previous, merged_with_next };

Behavior behavior_of(const Part& part) {
  const auto name = part.get<std::string>("behavior");
  if (name == "Removed") return Behavior::removed;
  if (name == "Isolated") return Behavior::isolated;
  if (name == "Contiguous") return Behavior::contiguous;
  if (name == "MergedWithPrevious") return Behavior::merged_with_previous;
  if (name == "MergedWithNext") return Behavior::merged_with_next;
  fail("{}: found the behavior '{}', expected Removed, Isolated, Contiguous, MergedWithPrevious or MergedWithNext",
       place_of(part), name);
}

/// Joins alternating matching and other parts of a text to words.
class Words {
 public:
  Words(std::string_view text, bool first, Behavior behavior, const TakeWord& take)
      : text_(text), first_(first), behavior_(behavior), take_(take) {}

  /// Adds the part from the end of the previous one to `end`.
  void add(size_t end, bool matches) {
    const bool joins = parts_ > 0 && (behavior_ == Behavior::contiguous             ? matches == last_matches_
                                      : behavior_ == Behavior::merged_with_previous ? matches && !last_matches_
                                      : behavior_ == Behavior::merged_with_next     ? !matches && last_matches_
                                                                                    : false);
    if (!joins) flush();
    removed_ = behavior_ == Behavior::removed && matches;
    last_matches_ = matches;
    end_ = end;
    ++parts_;
  }
  void flush() {
    if (end_ > begin_ && !removed_) take_(text_.substr(begin_, end_ - begin_), first_ && begin_ == 0);
    begin_ = end_;
  }

 private:
  std::string_view text_;
  bool first_;
  Behavior behavior_;
  const TakeWord& take_;
  size_t begin_ = 0, end_ = 0;  // the word that was not passed on yet
  size_t parts_ = 0;
  bool last_matches_ = false, removed_ = false;
};

/// `matches(take)` calls take(begin, end) for each match in order.
template <class Matches>
void split_at_matches(std::string_view text, bool first, Behavior behavior, bool invert, const TakeWord& take,
                      const Matches& matches) {
  Words words(text, first, behavior, take);
  size_t last = 0;
  matches([&](size_t begin, size_t end) {
    if (last < begin) words.add(begin, invert);
    words.add(end, !invert);
    last = end;
  });
  if (last < text.size()) words.add(text.size(), invert);
  words.flush();
}

/// Each character of a class is a match.
class CharacterSplit final : public PreTokenizer {
 public:
  CharacterSplit(std::function<bool(int32_t)> is_one, Behavior behavior)
      : is_one_(std::move(is_one)), behavior_(behavior) {}
  void split(std::string_view text, bool first, const TakeWord& take) const override {
    split_at_matches(text, first, behavior_, false, take, [&](const auto& match) {
      size_t at = 0;
      for_characters(text, [&](int32_t code, std::string_view bytes) {
        if (is_one_(code)) match(at, at + bytes.size());
        at += bytes.size();
      });
    });
  }

 private:
  std::function<bool(int32_t)> is_one_;
  Behavior behavior_;
};

class RegexSplit final : public PreTokenizer {
 public:
  RegexSplit(Regex regex, Behavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  void split(std::string_view text, bool first, const TakeWord& take) const override {
    split_at_matches(text, first, behavior_, invert_, take,
                     [&](const auto& match) { regex_.for_matches(text, std::ref(match)); });
  }

 private:
  Regex regex_;
  Behavior behavior_;
  bool invert_;
};

/// Runs of word characters, and runs of others that are no white space.
class WordSplit final : public PreTokenizer {
 public:
  void split(std::string_view text, bool first, const TakeWord& take) const override {
    enum Kind { space, word, other };
    size_t begin = 0, at = 0;
    Kind last = space;
    const auto end_run = [&] {
      if (last != space) take(text.substr(begin, at - begin), first && begin == 0);
      begin = at;
    };
    for_characters(text, [&](int32_t code, std::string_view bytes) {
      const Kind kind = is_white_space(code) ? space : is_word_character(code) ? word : other;
      if (kind != last) end_run();
      last = kind;
      at += bytes.size();
    });
    end_run();
  }
};

class ByteLevelSplit final : public PreTokenizer {
 public:
  ByteLevelSplit(bool add_prefix_space, bool use_regex, const std::string& where) : prefix_(add_prefix_space) {
    if (use_regex) regex_.emplace(kByteLevelWords, where);
  }
  void split(std::string_view text, bool first, const TakeWord& take) const override {
    std::string with_prefix;
    if (prefix_ && text.front() != ' ') {
      with_prefix.append(" ").append(text);
      text = with_prefix;
    }
    const TakeWord in_bytes = [&](std::string_view word, bool is_first) { take(to_byte_characters(word), is_first); };
    if (!regex_) return in_bytes(text, first);
    split_at_matches(text, first, Behavior::isolated, false, in_bytes,
                     [&](const auto& match) { regex_->for_matches(text, std::ref(match)); });
  }

 private:
  bool prefix_;
  std::optional<Regex> regex_;
};

class MetaspaceSplit final : public PreTokenizer {
 public:
  enum class Prepend { never, first, always };
  MetaspaceSplit(std::string mark, Prepend prepend, bool splits)
      : mark_(std::move(mark)), prepend_(prepend), splits_(splits) {}
  void split(std::string_view text, bool first, const TakeWord& take) const override {
    std::string marked;
    marked.reserve(text.size() + mark_.size());
    for (const char c : text) c == ' ' ? marked += mark_ : marked += c;
    const bool prepends = prepend_ == Prepend::always || (prepend_ == Prepend::first && first);
    if (prepends && !marked.starts_with(mark_)) marked.insert(0, mark_);
    if (!splits_) return take(marked, first);
    split_at_matches(marked, first, Behavior::merged_with_next, false, take, [&](const auto& match) {
      for (size_t at = marked.find(mark_); at != std::string::npos; at = marked.find(mark_, at + mark_.size())) {
        match(at, at + mark_.size());
      }
    });
  }

 private:
  std::string mark_;
  Prepend prepend_;
  bool splits_;
};

class PreTokenizerSequence final : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<const PreTokenizer>> parts) : parts_(std::move(parts)) {}
  void split(std::string_view text, bool first, const TakeWord& take) const override { run(0, text, first, take); }

 private:
  /// Each word passes through all parts before the next word, so that the words of a long text are never stored.
  void run(size_t part, std::string_view text, bool first, const TakeWord& take) const {
    if (part == parts_.size()) return take(text, first);
    parts_[part]->split(text, first,
                        [&](std::string_view word, bool is_first) { run(part + 1, word, is_first, take); });
  }

  std::vector<std::unique_ptr<const PreTokenizer>> parts_;
};

std::unique_ptr<const PreTokenizer> make_metaspace(const Part& part) {
  using Prepend = MetaspaceSplit::Prepend;
  // Files of older versions have add_prefix_space instead.
  const auto name = part.get_or("prepend_scheme", part.get_or("add_prefix_space", true) ? "always" : "never");
  check(name == "always" || name == "first" || name == "never",
        "{}: found the prepend_scheme '{}', expected always, first or never", place_of(part), name);
  const Prepend prepend = name == "always" ? Prepend::always : name == "first" ? Prepend::first : Prepend::never;
  return std::make_unique<MetaspaceSplit>(one_character(part, "replacement", "\xe2\x96\x81"), prepend,
                                          part.get_or("split", true));
}

std::unique_ptr<const PreTokenizer> in_sequence(std::unique_ptr<const PreTokenizer> a,
                                                std::unique_ptr<const PreTokenizer> b) {
  std::vector<std::unique_ptr<const PreTokenizer>> parts;
  parts.push_back(std::move(a));
  parts.push_back(std::move(b));
  return std::make_unique<PreTokenizerSequence>(std::move(parts));
}

}  // namespace

std::unique_ptr<const PreTokenizer> make_pre_tokenizer(const Part& part) {
  const auto type = part.get<std::string>("type");
  const auto characters = [](std::function<bool(int32_t)> is_one, Behavior behavior) {
    return std::make_unique<CharacterSplit>(std::move(is_one), behavior);
  };
  if (type == "ByteLevel") {
    return std::make_unique<ByteLevelSplit>(part.get_or("add_prefix_space", true), part.get_or("use_regex", true),
                                            place_of(part));
  }
  if (type == "Split") {
    return std::make_unique<RegexSplit>(pattern_of(part), behavior_of(part), part.get_or("invert", false));
  }
  if (type == "Whitespace") return std::make_unique<WordSplit>();
  if (type == "WhitespaceSplit") return characters(is_white_space, Behavior::removed);
  if (type == "BertPreTokenizer") {
    return in_sequence(characters(is_white_space, Behavior::removed), characters(is_punctuation, Behavior::isolated));
  }
  if (type == "Punctuation") {
    return characters(is_punctuation, part.has("behavior") ? behavior_of(part) : Behavior::isolated);
  }
  if (type == "Digits") {
    return characters(is_number, part.get_or("individual_digits", false) ? Behavior::isolated : Behavior::contiguous);
  }
  if (type == "CharDelimiterSplit") {
    const int32_t delimiter = character_at(one_character(part, "delimiter"), 0).code;
    return characters([delimiter](int32_t code) { return code == delimiter; }, Behavior::removed);
  }
  if (type == "Metaspace") return make_metaspace(part);
  if (type == "Sequence") {
    std::vector<std::unique_ptr<const PreTokenizer>> parts;
    for (const Part& member : members(part, "pretokenizers")) {
      parts.push_back(make_pre_tokenizer(member));
    }
    return std::make_unique<PreTokenizerSequence>(std::move(parts));
  }
  refuse_type(part, "pre-tokenizer", kPreTokenizers);
}

}  // namespace alibi::text::tokenizers
