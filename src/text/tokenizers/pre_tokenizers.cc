#include "text/tokenizers/pre_tokenizers.h"

#include <span>
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
PreTokenizer split_at_characters(std::function<bool(int32_t)> is_one, Behavior behavior) {
  return [is_one = std::move(is_one), behavior](std::string_view text, bool first, const TakeWord& take) {
    split_at_matches(text, first, behavior, false, take, [&](const auto& match) {
      size_t at = 0;
      for_characters(text, [&](int32_t code, std::string_view bytes) {
        if (is_one(code)) match(at, at + bytes.size());
        at += bytes.size();
      });
    });
  };
}

PreTokenizer split_at_regex(Regex regex, Behavior behavior, bool invert) {
  return [regex = std::move(regex), behavior, invert](std::string_view text, bool first, const TakeWord& take) {
    split_at_matches(text, first, behavior, invert, take,
                     [&](const auto& match) { regex.for_matches(text, std::ref(match)); });
  };
}

/// Splits into runs of word characters, and runs of others that are no white space.
void split_words(std::string_view text, bool first, const TakeWord& take) {
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

PreTokenizer make_byte_level(const Part& part) {
  const bool prefix = part.get_or("add_prefix_space", true);
  PreTokenizer split = [](std::string_view text, bool first, const TakeWord& take) { take(text, first); };
  if (part.get_or("use_regex", true))
    split = split_at_regex({kByteLevelWords, place_of(part)}, Behavior::isolated, false);
  return [prefix, split = std::move(split)](std::string_view text, bool first, const TakeWord& take) {
    std::string with_prefix;
    if (prefix && text.front() != ' ') {
      with_prefix.append(" ").append(text);
      text = with_prefix;
    }
    split(text, first, [&](std::string_view word, bool is_first) { take(to_byte_characters(word), is_first); });
  };
}

PreTokenizer make_metaspace(const Part& part) {
  // Files of older versions have add_prefix_space instead.
  const auto scheme = part.get_or("prepend_scheme", part.get_or("add_prefix_space", true) ? "always" : "never");
  check(scheme == "always" || scheme == "first" || scheme == "never",
        "{}: found the prepend_scheme '{}', expected always, first or never", place_of(part), scheme);
  return [scheme, mark = one_character(part, "replacement", "\xe2\x96\x81"), splits = part.get_or("split", true)](
             std::string_view text, bool first, const TakeWord& take) {
    std::string marked;
    marked.reserve(text.size() + mark.size());
    for (const char c : text) c == ' ' ? marked += mark : marked += c;
    const bool prepends = scheme == "always" || (scheme == "first" && first);
    if (prepends && !marked.starts_with(mark)) marked.insert(0, mark);
    if (!splits) return take(marked, first);
    split_at_matches(marked, first, Behavior::merged_with_next, false, take, [&](const auto& match) {
      for (size_t at = marked.find(mark); at != std::string::npos; at = marked.find(mark, at + mark.size())) {
        match(at, at + mark.size());
      }
    });
  };
}

/// Each word passes through all parts before the next word, so that the words of a long text are never stored.
void split_by_all(std::span<const PreTokenizer> parts, std::string_view text, bool first, const TakeWord& take) {
  if (parts.empty()) return take(text, first);
  parts[0](text, first,
           [&](std::string_view word, bool is_first) { split_by_all(parts.subspan(1), word, is_first, take); });
}

PreTokenizer in_sequence(std::vector<PreTokenizer> parts) {
  return [parts = std::move(parts)](std::string_view text, bool first, const TakeWord& take) {
    split_by_all(parts, text, first, take);
  };
}

}  // namespace

PreTokenizer make_pre_tokenizer(const Part& part) {
  const auto type = part.get<std::string>("type");
  if (type == "ByteLevel") return make_byte_level(part);
  if (type == "Split") return split_at_regex(pattern_of(part), behavior_of(part), part.get_or("invert", false));
  if (type == "Whitespace") return split_words;
  if (type == "WhitespaceSplit") return split_at_characters(is_white_space, Behavior::removed);
  if (type == "BertPreTokenizer") {
    return in_sequence({split_at_characters(is_white_space, Behavior::removed),
                        split_at_characters(is_punctuation, Behavior::isolated)});
  }
  if (type == "Punctuation") {
    return split_at_characters(is_punctuation, part.has("behavior") ? behavior_of(part) : Behavior::isolated);
  }
  if (type == "Digits") {
    return split_at_characters(is_number,
                               part.get_or("individual_digits", false) ? Behavior::isolated : Behavior::contiguous);
  }
  if (type == "CharDelimiterSplit") {
    const int32_t delimiter = character_at(one_character(part, "delimiter"), 0).code;
    return split_at_characters([delimiter](int32_t code) { return code == delimiter; }, Behavior::removed);
  }
  if (type == "Metaspace") return make_metaspace(part);
  if (type == "Sequence") {
    std::vector<PreTokenizer> parts;
    for (const Part& member : members(part, "pretokenizers")) parts.push_back(make_pre_tokenizer(member));
    return in_sequence(std::move(parts));
  }
  refuse_type(part, "pre-tokenizer", kPreTokenizers);
}

}  // namespace alibi::text::tokenizers
