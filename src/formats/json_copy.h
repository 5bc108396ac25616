// JSON that is copied: its numbers keep the characters that they were written with.
#pragma once

#include <string>
#include <string_view>

#include "formats/json.h"

namespace alibi::formats {

/// Like parse_json(), but a number that is no integer of 64 bits becomes a binary value of its characters, which
/// to_line() and to_text() write. So no number changes, however many digits it has.
SharedJson parse_json_to_copy(std::string_view text, std::string_view source);

/// Puts the numbers of `source`, which is of parse_json_to_copy(), into an equal value with ordered keys.
void keep_numbers(const Json& source, OrderedJson& copy);

/// Like to_text(), but in one line without a line feed.
std::string to_line(const OrderedJson& json);

}  // namespace alibi::formats
