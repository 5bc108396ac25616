// Escaping of text for HTML, SVG and terminals.
#pragma once

#include <string>
#include <string_view>

namespace alibi::report {

/// Escapes text for use as content or as a quoted attribute in HTML and XML. Invalid UTF-8 and characters that XML
/// forbids become U+FFFD.
std::string escape_markup(std::string_view text);

/// Escapes text for one line of a terminal: control characters, characters that reorder the line, invalid
/// UTF-8, line ends and tabs become \x1b codes. Markup is not escaped.
std::string visible_text(std::string_view text);

/// Moves `position` forward to the next start of a UTF-8 character, by at most three bytes.
size_t character_start(std::string_view text, size_t position);

}  // namespace alibi::report
