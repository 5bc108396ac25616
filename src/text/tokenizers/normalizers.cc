#include "text/tokenizers/normalizers.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.h"
#include "text/tokenizers/byte_level.h"
#include "text/tokenizers/charsmap.h"
#include "text/tokenizers/json_part.h"
#include "text/tokenizers/regex.h"
#include "text/tokenizers/unicode.h"

namespace alibi::text::tokenizers {
namespace {

constexpr const char* kNormalizers =
    "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, Nmt, Precompiled, "
    "BertNormalizer or ByteLevel";

/// A normalizer that applies a function to the text.
template <class Function>
class NormalizerOf final : public Normalizer {
 public:
  explicit NormalizerOf(Function function) : function_(std::move(function)) {}
  std::string apply(std::string text) const override { return function_(std::move(text)); }

 private:
  Function function_;
};

template <class Function>
std::unique_ptr<const Normalizer> normalizer_of(Function function) {
  return std::make_unique<NormalizerOf<Function>>(std::move(function));
}

/// The text with some characters removed or changed: change(code) returns the replacement, or 0 to remove the
/// character.
template <class Change>
std::string each_character(std::string_view text, const Change& change) {
  std::string result;
  result.reserve(text.size());
  for_characters(text, [&](int32_t code, std::string_view bytes) {
    const int32_t changed = change(code);
    if (changed == code && code != 0) {
      result += bytes;
    } else if (changed != 0) {
      append_character(result, changed);
    }
  });
  return result;
}

class NormalizerSequence final : public Normalizer {
 public:
  NormalizerSequence(std::vector<std::unique_ptr<const Normalizer>> parts, std::string place)
      : parts_(std::move(parts)), place_(std::move(place)) {}
  std::string apply(std::string text) const override {
    const size_t before = text.size();
    for (const auto& part : parts_) {
      text = part->apply(std::move(text));
      check_growth(before, text.size(), place_);
    }
    return text;
  }
  bool strips_left() const override {
    for (const auto& part : parts_) {
      if (part->strips_left()) return true;
    }
    return false;
  }

 private:
  std::vector<std::unique_ptr<const Normalizer>> parts_;
  std::string place_;
};

class StripEnds final : public Normalizer {
 public:
  StripEnds(bool left, bool right) : left_(left), right_(right) {}
  std::string apply(std::string text) const override {
    std::string_view rest = text;
    while (left_ && !rest.empty() && is_white_space(character_at(rest, 0).code)) {
      rest.remove_prefix(character_at(rest, 0).length);
    }
    while (right_ && !rest.empty() && is_white_space(character_at(rest, last_character(rest)).code)) {
      rest = rest.substr(0, last_character(rest));
    }
    return std::string(rest);
  }
  bool strips_left() const override { return left_; }

 private:
  bool left_, right_;
};

int32_t nmt(int32_t code) {
  if ((code >= 1 && code <= 8) || code == 0xb || (code >= 0xe && code <= 0x1f) || code == 0x7f || code == 0x8f ||
      code == 0x9f) {
    return 0;
  }
  const bool space = code == '\t' || code == '\n' || code == '\f' || code == '\r' || code == 0x1680 ||
                     (code >= 0x200b && code <= 0x200f) || code == 0x2028 || code == 0x2029 || code == 0x2581 ||
                     code == 0xfeff || code == 0xfffd;
  return space ? ' ' : code;
}

/// U+0000 must be kept here, but each_character() treats 0 as removal.
std::string nmt_of(std::string_view text) {
  std::string result;
  for (size_t begin = 0;; ++begin) {
    const size_t nul = std::min(text.find('\0', begin), text.size());
    result += each_character(text.substr(begin, nul - begin), nmt);
    if (nul == text.size()) return result;
    result += '\0';
    begin = nul;
  }
}

std::string precompiled(const Charsmap& rules, std::string_view text, const std::string& place) {
  constexpr size_t most_of_a_cluster = 6;  // longer clusters are processed character by character
  std::string result;
  const auto add = [&](std::string_view part) {
    const std::optional<std::string_view> replacement = rules.shortest(part);
    if (replacement) result += *replacement;
    return replacement.has_value();
  };
  for (size_t at = 0; at < text.size();) {
    const std::string_view cluster = text.substr(at, grapheme_length(text.substr(at)));
    at += cluster.size();
    check_growth(text.size(), result.size(), place);
    if (cluster.size() < most_of_a_cluster && add(cluster)) continue;
    for_characters(cluster, [&](int32_t, std::string_view bytes) {
      if (!add(bytes)) result += bytes;
    });
  }
  return result;
}

std::string bert(std::string text, bool clean, bool chinese, bool accents, bool lower) {
  if (clean) {
    text = each_character(text, [](int32_t code) {
      if (code == 0 || code == 0xfffd || is_control(code)) return 0;
      return is_white_space(code) ? static_cast<int32_t>(' ') : code;
    });
  }
  if (chinese) {
    std::string spaced;
    for_characters(text, [&](int32_t code, std::string_view bytes) {
      if (is_chinese(code)) {
        spaced.append(" ").append(bytes).append(" ");
      } else {
        spaced += bytes;
      }
    });
    text = std::move(spaced);
  }
  if (accents) {
    std::string kept;
    for_characters(normalized(text, NormalForm::nfd), [&](int32_t code, std::string_view bytes) {
      if (!is_nonspacing_mark(code)) kept += bytes;
    });
    text = std::move(kept);
  }
  return lower ? lower_case(text) : text;
}

std::unique_ptr<const Normalizer> make_replace(const Part& part) {
  return normalizer_of([pattern = pattern_of(part), content = part.get<std::string>("content"),
                        place = place_of(part)](const std::string& text) {
    std::string result;
    size_t copied = 0;
    pattern.for_matches(text, [&](size_t begin, size_t end) {
      result.append(text, copied, begin - copied).append(content);
      copied = end;
      check_growth(text.size(), result.size(), place);
    });
    return result.append(text, copied);
  });
}

}  // namespace

std::unique_ptr<const Normalizer> make_normalizer(const Part& part) {
  const auto type = part.get<std::string>("type");
  const auto form = [](NormalForm f) {
    return normalizer_of([f](const std::string& text) { return normalized(text, f); });
  };
  if (type == "NFC") return form(NormalForm::nfc);
  if (type == "NFD") return form(NormalForm::nfd);
  if (type == "NFKC") return form(NormalForm::nfkc);
  if (type == "NFKD") return form(NormalForm::nfkd);
  if (type == "Lowercase") return normalizer_of([](const std::string& text) { return lower_case(text); });
  if (type == "Strip") return std::make_unique<StripEnds>(part.get<bool>("strip_left"), part.get<bool>("strip_right"));
  if (type == "Replace") return make_replace(part);
  if (type == "Nmt") return normalizer_of([](const std::string& text) { return nmt_of(text); });
  if (type == "ByteLevel") return normalizer_of([](const std::string& text) { return to_byte_characters(text); });
  if (type == "StripAccents") {
    return normalizer_of([](const std::string& text) {
      std::string kept;
      for_characters(text, [&](int32_t code, std::string_view bytes) {
        if (!is_mark(code)) kept += bytes;
      });
      return kept;
    });
  }
  if (type == "Prepend") {
    return normalizer_of([before = part.get<std::string>("prepend")](const std::string& text) {
      return text.empty() ? text : before + text;
    });
  }
  if (type == "Precompiled") {
    const std::string place = place_of(part);
    const Charsmap rules(from_base64(part.get<std::string>("precompiled_charsmap"), place), place);
    return normalizer_of([rules, place](const std::string& text) { return precompiled(rules, text, place); });
  }
  if (type == "BertNormalizer") {
    const bool lower = part.get_or("lowercase", true);
    const bool accents = part.get_or("strip_accents", lower);
    return normalizer_of([clean = part.get_or("clean_text", true), chinese = part.get_or("handle_chinese_chars", true),
                          accents,
                          lower](std::string text) { return bert(std::move(text), clean, chinese, accents, lower); });
  }
  if (type == "Sequence") {
    std::vector<std::unique_ptr<const Normalizer>> parts;
    for (const Part& member : members(part, "normalizers")) parts.push_back(make_normalizer(member));
    return std::make_unique<NormalizerSequence>(std::move(parts), place_of(part));
  }
  refuse_type(part, "normalizer", kNormalizers);
}

}  // namespace alibi::text::tokenizers
