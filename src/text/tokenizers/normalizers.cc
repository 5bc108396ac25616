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
#include "text/tokenizers/unicode.h"

namespace alibi::text::tokenizers {
namespace {

constexpr const char* kNormalizers =
    "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, Nmt, Precompiled, "
    "BertNormalizer or ByteLevel";

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

std::string without(std::string_view text, bool (*is_one)(int32_t)) {
  std::string kept;
  for_characters(text, [&](int32_t code, std::string_view bytes) {
    if (!is_one(code)) kept += bytes;
  });
  return kept;
}

std::string strip_ends(std::string_view rest, bool left, bool right) {
  while (left && !rest.empty() && is_white_space(character_at(rest, 0).code)) {
    rest.remove_prefix(character_at(rest, 0).length);
  }
  while (right && !rest.empty() && is_white_space(character_at(rest, last_character(rest)).code)) {
    rest = rest.substr(0, last_character(rest));
  }
  return std::string(rest);
}

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
  if (accents) text = without(normalized(text, NormalForm::nfd), is_nonspacing_mark);
  return lower ? lower_case(text) : text;
}

Normalizer make_sequence(const Part& part) {
  std::vector<Normalizer> parts;
  for (const Part& member : members(part, "normalizers")) parts.push_back(make_normalizer(member));
  const bool strips_left =
      std::any_of(parts.begin(), parts.end(), [](const Normalizer& one) { return one.strips_left; });
  return {[parts = std::move(parts), place = place_of(part)](std::string text) {
            const size_t before = text.size();
            for (const Normalizer& one : parts) {
              text = one.apply(std::move(text));
              check_growth(before, text.size(), place);
            }
            return text;
          },
          strips_left};
}

}  // namespace

Normalizer make_normalizer(const Part& part) {
  const auto type = part.get<std::string>("type");
  const auto form = [](NormalForm f) -> Normalizer {
    return {[f](const std::string& text) { return normalized(text, f); }};
  };
  if (type == "NFC") return form(NormalForm::nfc);
  if (type == "NFD") return form(NormalForm::nfd);
  if (type == "NFKC") return form(NormalForm::nfkc);
  if (type == "NFKD") return form(NormalForm::nfkd);
  if (type == "Lowercase") return {lower_case};
  if (type == "Strip") {
    const bool left = part.get<bool>("strip_left"), right = part.get<bool>("strip_right");
    return {[left, right](const std::string& text) { return strip_ends(text, left, right); }, left};
  }
  if (type == "Replace") return {replacement_of(part)};
  if (type == "Nmt") return {nmt_of};
  if (type == "ByteLevel") return {to_byte_characters};
  if (type == "StripAccents") return {[](const std::string& text) { return without(text, is_mark); }};
  if (type == "Prepend") {
    return {[before = part.get<std::string>("prepend")](const std::string& text) {
      return text.empty() ? text : before + text;
    }};
  }
  if (type == "Precompiled") {
    const std::string place = place_of(part);
    const Charsmap rules(from_base64(part.get<std::string>("precompiled_charsmap"), place), place);
    return {[rules, place](const std::string& text) { return precompiled(rules, text, place); }};
  }
  if (type == "BertNormalizer") {
    const bool lower = part.get_or("lowercase", true);
    const bool accents = part.get_or("strip_accents", lower);
    return {[clean = part.get_or("clean_text", true), chinese = part.get_or("handle_chinese_chars", true), accents,
             lower](std::string text) { return bert(std::move(text), clean, chinese, accents, lower); }};
  }
  if (type == "Sequence") return make_sequence(part);
  refuse_type(part, "normalizer", kNormalizers);
}

}  // namespace alibi::text::tokenizers
