#include "serve/fields.h"

#include <fmt/format.h>

#include <cmath>

#include "alibi/error.h"

namespace alibi::serve {
namespace {

/// The beginning of a value, for messages.
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

bool is_token(const Json& value) {
  return value.is_number_integer() && value >= 0 && value <= std::numeric_limits<int32_t>::max();
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
    throw ApiError{400, fmt::format("{} is {}, expected an object", where, shown(object)), where};
}

const Json* Fields::find(std::string_view key) const {
  const auto found = object_->find(std::string(key));
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

const Json& Fields::at(std::string_view key) const {
  const Json* const value = find(key);
  if (value == nullptr) throw ApiError{400, fmt::format("{}{} is missing", where_, key), where_ + std::string(key)};
  return *value;
}

void Fields::fail(std::string_view key, const std::string& problem) const {
  const Json* const value = find(key);
  throw ApiError{400, fmt::format("{}{} is {}, {}", where_, key, value != nullptr ? shown(*value) : "missing", problem),
                 where_ + std::string(key)};
}

std::optional<int64_t> Fields::integer(std::string_view key, int64_t least, int64_t most) const {
  const Json* const value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto expected = [&] {
    return most == std::numeric_limits<int64_t>::max() ? fmt::format("expected an integer of at least {}", least)
                                                       : fmt::format("expected an integer from {} to {}", least, most);
  };
  // An unsigned number may be larger than any signed one.
  if (!value->is_number_integer() || (value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{1} << 62))
    fail(key, expected());
  const auto number = value->get<int64_t>();
  if (number < least || number > most) fail(key, expected());
  return number;
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
    if (!is_token(id)) fail(key, "expected a list of tokens, which are integers of at least 0");
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

std::vector<TextInput> Fields::inputs(std::string_view key) const {
  const std::string expected = "expected a text, a list of tokens, or a list of either";
  const Json& value = at(key);
  if (value.is_string()) return {{.text = value.get<std::string>()}};
  if (!value.is_array() || value.empty()) fail(key, expected);
  if (is_token(value.front())) return {{.ids = tokens(key)}};
  std::vector<TextInput> all;
  for (const Json& one : value) {
    if (one.is_string()) {
      all.push_back({.text = one.get<std::string>()});
      continue;
    }
    if (!one.is_array()) fail(key, expected);
    TextInput input;
    for (const Json& id : one) {
      if (!is_token(id)) fail(key, expected);
      input.ids.push_back(id.get<int32_t>());
    }
    all.push_back(std::move(input));
  }
  return all;
}

void Fields::expect(std::string_view key, const Json& supported) const {
  const Json* const value = find(key);
  if (value != nullptr && *value != supported) fail(key, fmt::format("only {} is supported", shown(supported)));
}

}  // namespace alibi::serve
