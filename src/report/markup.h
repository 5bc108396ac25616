// Escaping of text for HTML, SVG and terminals.
#pragma once

#include <string>
#include <string_view>

namespace alibi::report {

/// Safe as content and as a quoted attribute of HTML and XML. Bytes that are not UTF-8 and characters that XML forbids
/// become U+FFFD.
std::string escape_markup(std::string_view text);

/// Generated text, which may hold anything: like escape_markup, but control characters, characters that reorder the
/// line and bytes that are not UTF-8 are shown as <i class="byte">\x1b</i>. Line ends and tabs stay.
std::string visible_markup(std::string_view text);

/// For a terminal, on one line: what visible_markup() shows, line ends and tabs too, as \x1b. Markup stays as it is.
std::string visible_text(std::string_view text);

/// `position` moved forward to the next start of a UTF-8 character, by three bytes at most.
size_t character_start(std::string_view text, size_t position);

/// Number of UTF-8 characters, counting stray bytes as one each.
size_t count_characters(std::string_view text);

}  // namespace alibi::report
