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

/// An object of a file that is kept elsewhere, and where it stands. It has what formats::JsonObject has, without
/// copies.
class Part {
 public:
  /// Throws Error if the value is no object.
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
  /// The value of one key, without what is in it.
  formats::JsonObject alone(std::string_view key) const;

  const formats::Json* json_;
  std::string where_;
};

/// One character, given as a string.
std::string one_character(const Part& part, std::string_view key, const char* fallback = nullptr);

/// The members of a Sequence. Throws Error for sequences in sequences that are deeper than any tokenizer has them.
std::vector<Part> members(const Part& part, std::string_view key);

/// A pattern: {"String": "..."} or {"Regex": "..."}.
Regex pattern_of(const Part& part, std::string_view key = "pattern");

/// "[tokenizer] tokenizer.json: normalizer", for errors.
std::string place_of(const Part& part);

/// Refuses a type by its name.
[[noreturn]] void refuse_type(const Part& part, std::string_view what, std::string_view known);

/// Throws Error if a text of `before` bytes was made so much longer as no tokenizer does: sequences of replacements
/// could make it as long as they like.
void check_growth(size_t before, size_t now, const std::string& place);

}  // namespace alibi::text::tokenizers
