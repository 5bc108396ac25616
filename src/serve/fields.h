// The fields of a request's JSON object. Every error names the field.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json.h"
#include "serve/http.h"

namespace alibi::serve {

/// A text, or the tokens of one.
struct TextInput {
  std::optional<std::string> text = {};
  std::vector<int32_t> ids = {};
};

class Fields {
 public:
  /// Throws ApiError unless the body is one JSON object that nests no deeper than formats::kMaxJsonDepth.
  explicit Fields(std::string_view body);
  /// An object inside of another one; `where` is its name.
  Fields(const Json& object, const std::string& where);

  /// The value, or null if it is missing or null.
  const Json* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  /// Throws ApiError if it is missing.
  const Json& at(std::string_view key) const;

  std::optional<int64_t> integer(std::string_view key, int64_t least,
                                 int64_t most = std::numeric_limits<int64_t>::max()) const;
  std::optional<double> number(std::string_view key, double least, double most) const;
  bool flag(std::string_view key, bool fallback) const;
  std::optional<std::string> text(std::string_view key) const;
  /// A text or a list of texts; none if the field is missing.
  std::vector<std::string> texts(std::string_view key) const;
  /// A text, tokens, or a list of either: at least one.
  std::vector<TextInput> inputs(std::string_view key) const;
  std::vector<int32_t> tokens(std::string_view key) const;

  /// Throws ApiError if the field has another value than those that change nothing, and names the first of these.
  void expect(std::string_view key, std::initializer_list<Json> supported) const;
  [[noreturn]] void fail(std::string_view key, const std::string& problem) const;

 private:
  formats::SharedJson owned_;
  const Json* object_;
  std::string where_;
};

}  // namespace alibi::serve
