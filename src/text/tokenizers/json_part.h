// The parts of a tokenizer.json, each an object with a "type".
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json.h"
#include "text/tokenizers/regex.h"

namespace alibi::text::tokenizers {

using Part = formats::JsonObject;

/// A view of an object in a file that outlives it. Throws Error if the value is not an object.
Part view_of(const formats::Json& json, std::string where);

/// One character, given as a string.
std::string one_character(const Part& part, std::string_view key, const char* fallback = nullptr);

/// The members of a Sequence. Throws Error for sequences that are nested deeper than in any real tokenizer.
std::vector<Part> members(const Part& part, std::string_view key);

/// A pattern: {"String": "..."} or {"Regex": "..."}.
Regex pattern_of(const Part& part, std::string_view key = "pattern");

/// Replaces the matches of "pattern" by "content".
std::function<std::string(const std::string&)> replacement_of(const Part& part);

/// The location for errors, e.g. "[tokenizer] tokenizer.json: normalizer".
std::string place_of(const Part& part);

/// Throws Error that names the type.
[[noreturn]] void refuse_type(const Part& part, std::string_view what, std::string_view known);

/// Throws Error if a text of `before` bytes has grown more than in any real tokenizer, because sequences of
/// replacements could make it arbitrarily long.
void check_growth(size_t before, size_t now, const std::string& place);

}  // namespace alibi::text::tokenizers
