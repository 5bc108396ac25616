#include "text/tokenizers/json_part.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "text/tokenizers/unicode.h"

namespace alibi::text::tokenizers {

Part view_of(const formats::Json& json, std::string where) {
  return {formats::SharedJson(formats::SharedJson(), &json), std::move(where)};
}

std::string one_character(const Part& part, std::string_view key, const char* fallback) {
  const std::string text = fallback ? part.get_or(key, fallback) : part.get<std::string>(key);
  check(count_characters(text) == 1, "{}: {} is '{}', expected one character", place_of(part), key, text);
  return text;
}

std::vector<Part> members(const Part& part, std::string_view key) {
  const auto list = part.raw().find(key);
  check(list != part.raw().end() && list->is_array(), "{}: {} is not a list", place_of(part), key);
  constexpr int deepest = 4;
  check(std::count(part.where().begin(), part.where().end(), '[') < deepest, "{}: sequences nest deeper than {} levels",
        place_of(part), deepest);
  std::vector<Part> result;
  for (size_t i = 0; i < list->size(); ++i) {
    result.push_back(view_of((*list)[i], fmt::format("{}{}[{}].", part.where(), key, i)));
  }
  return result;
}

Regex pattern_of(const Part& part, std::string_view key) {
  const Part pattern = part.object(key);
  if (pattern.has("Regex")) return {pattern.get<std::string>("Regex"), place_of(part)};
  return Regex::of_text(pattern.get<std::string>("String"), place_of(part));
}

std::function<std::string(const std::string&)> replacement_of(const Part& part) {
  return [pattern = pattern_of(part), content = part.get<std::string>("content"),
          place = place_of(part)](const std::string& text) {
    std::string result;
    size_t copied = 0;
    pattern.for_matches(text, [&](size_t begin, size_t end) {
      result.append(text, copied, begin - copied).append(content);
      copied = end;
      check_growth(text.size(), result.size(), place);
    });
    return result.append(text, copied);
  };
}

std::string place_of(const Part& part) {
  std::string_view place = part.where();
  while (place.ends_with('.') || place.ends_with(' ') || place.ends_with(':')) place.remove_suffix(1);
  return fmt::format("[tokenizer] {}", place);
}

void refuse_type(const Part& part, std::string_view what, std::string_view known) {
  fail("{}: found the {} '{}', expected {}; other types cannot be read: save the tokenizer with one of these",
       place_of(part), what, part.get_or<std::string>("type", "?"), known);
}

void check_growth(size_t before, size_t now, const std::string& place) {
  constexpr size_t most = 32, more = 4096;
  check(now / most <= before + more / most, "{}: a text of {} bytes becomes one of more than {}", place, before,
        now - 1);
}

}  // namespace alibi::text::tokenizers
