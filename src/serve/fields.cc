#include "serve/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "alibi/error.h"

namespace alibi::serve {
namespace {

/// The value if it is an integer, also one that is written as 10.0 or 1e3: JSON has one type of numbers.
std::optional<int64_t> integer_of(const Json& value) {
  constexpr double end = 9223372036854775808.0;  // 2^63
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) return std::nullopt;
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number()) return std::nullopt;
  const auto number = value.get<double>();
  if (!(number >= -end && number < end) || std::trunc(number) != number) return std::nullopt;
  return static_cast<int64_t>(number);
}

std::optional<int32_t> token_of(const Json& value) {
  const std::optional<int64_t> id = integer_of(value);
  if (!id || *id < 0 || *id > std::numeric_limits<int32_t>::max()) return std::nullopt;
  return static_cast<int32_t>(*id);
}

}  // namespace

Fields::Fields(std::string_view body) {
  try {
    owned_ = formats::parse_json(body, "the body of the request");
  } catch (const Error& error) {
    throw ApiError{400, error.what(), "", "invalid_json"};
  }
  object_ = owned_.get();
  if (!object_->is_object()) throw ApiError{400, "the body of the request is no JSON object", "", "invalid_json"};
}

Fields::Fields(const Json& object, const std::string& where) : object_(&object), where_(where + ".") {
  if (!object.is_object())
    throw ApiError{400, fmt::format("{} is {}, expected an object", where, formats::shown(object)), where};
}

const Json* Fields::find(std::string_view key) const {
  const auto found = object_->find(std::string(key));
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

const Json& Fields::at(std::string_view key) const {
  const Json* const value = find(key);
  if (value != nullptr) return *value;
  const bool is_null = object_->contains(std::string(key));
  throw ApiError{400, fmt::format("{}{} is {}", where_, key, is_null ? "null" : "missing"), where_ + std::string(key)};
}

void Fields::fail(std::string_view key, const std::string& problem) const {
  const Json* const value = find(key);
  throw ApiError{
      400, fmt::format("{}{} is {}, {}", where_, key, value != nullptr ? formats::shown(*value) : "missing", problem),
      where_ + std::string(key)};
}

std::optional<int64_t> Fields::integer(std::string_view key, int64_t least, int64_t most) const {
  const Json* const value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> number = integer_of(*value);
  if (number && *number >= least && *number <= most) return number;
  constexpr int64_t largest = std::numeric_limits<int64_t>::max();
  if (most < largest) fail(key, fmt::format("expected an integer from {} to {}", least, most));
  // JSON has larger integers than this library.
  const bool is_large = value->is_number() && value->get<double>() >= static_cast<double>(largest);
  fail(key, is_large ? fmt::format("expected an integer of at most {}", largest)
                     : fmt::format("expected an integer of at least {}", least));
}

std::optional<double> Fields::number(std::string_view key, double least, double most) const {
  const Json* const value = find(key);
  if (value == nullptr) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= least && number <= most)) fail(key, fmt::format("expected a number from {} to {}", least, most));
  return number;
}

bool Fields::flag(std::string_view key, bool fallback) const {
  const Json* const value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) fail(key, "expected true or false");
  return value->get<bool>();
}

std::optional<std::string> Fields::text(std::string_view key) const {
  const Json* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(key, "expected a text");
  return value->get<std::string>();
}

std::vector<std::string> Fields::texts(std::string_view key) const {
  const Json* const value = find(key);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) fail(key, "expected a text or a list of texts");
  std::vector<std::string> texts;
  for (const Json& text : *value) {
    if (!text.is_string()) fail(key, "expected a text or a list of texts");
    texts.push_back(text.get<std::string>());
  }
  return texts;
}

std::vector<int32_t> Fields::tokens(std::string_view key) const {
  const Json& value = at(key);
  std::vector<int32_t> ids;
  if (!value.is_array()) fail(key, "expected a list of tokens");
  for (const Json& id : value) {
    const std::optional<int32_t> token = token_of(id);
    if (!token) fail(key, "expected a list of tokens, which are integers of at least 0");
    ids.push_back(*token);
  }
  return ids;
}

std::vector<TextInput> Fields::inputs(std::string_view key) const {
  const std::string expected = "expected a text, a list of tokens, or a list of either";
  const Json& value = at(key);
  if (value.is_string()) return {{.text = value.get<std::string>()}};
  if (!value.is_array() || value.empty()) fail(key, expected);
  if (token_of(value.front())) return {{.ids = tokens(key)}};
  std::vector<TextInput> all;
  for (const Json& one : value) {
    if (one.is_string()) {
      all.push_back({.text = one.get<std::string>()});
      continue;
    }
    if (!one.is_array()) fail(key, expected);
    TextInput input;
    for (const Json& id : one) {
      const std::optional<int32_t> token = token_of(id);
      if (!token) fail(key, expected);
      input.ids.push_back(*token);
    }
    all.push_back(std::move(input));
  }
  return all;
}

void Fields::expect(std::string_view key, std::initializer_list<Json> supported) const {
  const Json* const value = find(key);
  if (value == nullptr || std::find(supported.begin(), supported.end(), *value) != supported.end()) return;
  fail(key, fmt::format("only {} is supported", formats::shown(*supported.begin())));
}

}  // namespace alibi::serve
