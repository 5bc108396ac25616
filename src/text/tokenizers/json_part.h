// The parts of a tokenizer.json, each an object with a "type".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.h"
#include "formats/json.h"
#include "text/tokenizers/regex.h"

namespace alibi::text::tokenizers {

/// A view of an object in a file, with its location. It has the interface of formats::JsonObject, without copies.
class Part {
 public:
  /// Throws Error if the value is not an object.
  Part(const formats::Json& json, std::string where);

  bool has(std::string_view key) const;
  const formats::Json& raw() const { return *json_; }
  const std::string& where() const { return where_; }

  /// T is bool, int64_t, double or std::string.
  template <class T>
  T get(std::string_view key) const {
    return alone(key).get<T>(key);
  }
  template <class T>
  T get_or(std::string_view key, T fallback) const {
    return has(key) ? get<T>(key) : std::move(fallback);
  }
  std::string get_or(std::string_view key, const char* fallback) const { return get_or(key, std::string(fallback)); }
  int64_t get_int(std::string_view key, int64_t min, int64_t max) const { return alone(key).get_int(key, min, max); }
  int64_t get_int_or(std::string_view key, int64_t fallback, int64_t min, int64_t max) const {
    return has(key) ? get_int(key, min, max) : fallback;
  }
  Part object(std::string_view key) const;

 private:
  /// An object with only this key and an empty value of its type.
  formats::JsonObject alone(std::string_view key) const;

  const formats::Json* json_;
  std::string where_;
};

/// One character, given as a string.
std::string one_character(const Part& part, std::string_view key, const char* fallback = nullptr);

/// The members of a Sequence. Throws Error for sequences that are nested deeper than in any real tokenizer.
std::vector<Part> members(const Part& part, std::string_view key);

/// A pattern: {"String": "..."} or {"Regex": "..."}.
Regex pattern_of(const Part& part, std::string_view key = "pattern");

/// The location for errors, e.g. "[tokenizer] tokenizer.json: normalizer".
std::string place_of(const Part& part);

/// Throws Error that names the type.
[[noreturn]] void refuse_type(const Part& part, std::string_view what, std::string_view known);

/// Throws Error if a text of `before` bytes has grown more than in any real tokenizer, because sequences of
/// replacements could make it arbitrarily long.
void check_growth(size_t before, size_t now, const std::string& place);

}  // namespace alibi::text::tokenizers
