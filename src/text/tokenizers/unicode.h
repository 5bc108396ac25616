// Characters in UTF-8: their classes and their normalization forms. The classes are those of the Hugging Face
// tokenizers library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace alibi::text::tokenizers {

struct Character {
  int32_t code = 0;
  size_t length = 1;  ///< in bytes
};

/// The character at `at`, which is below text.size(). The text should be well-formed UTF-8; otherwise a byte that
/// begins no character counts as U+FFFD.
Character character_at(std::string_view text, size_t at);
/// Length of the beginning of a character at `at` that further bytes could complete; 0 if no character begins so.
/// There must be no whole one.
size_t begun_length(std::string_view text, size_t at);
/// Offset of the last character of a non-empty text.
size_t last_character(std::string_view text);
size_t count_characters(std::string_view text);
void append_character(std::string& text, int32_t code);
/// Replaces each maximal incomplete sequence by U+FFFD, as Rust and Python do.
std::string replace_malformed(std::string_view bytes);

bool is_white_space(int32_t code);
/// White space of Python's str.isspace() and \s, which has four more control characters.
bool is_python_space(int32_t code);
/// \w of Rust's expressions.
bool is_word_character(int32_t code);
/// General category N.
bool is_number(int32_t code);
bool is_punctuation(int32_t code);
/// Control, format and private-use characters, except tab, line feed and carriage return.
bool is_control(int32_t code);
/// General category M.
bool is_mark(int32_t code);
/// General category Mn.
bool is_nonspacing_mark(int32_t code);
bool is_chinese(int32_t code);

enum class NormalForm { nfc, nfd, nfkc, nfkd };
std::string normalized(std::string_view text, NormalForm form);
std::string lower_case(std::string_view text);

/// Calls take(code, its bytes) for each character.
template <class Take>
void for_characters(std::string_view text, const Take& take) {
  for (size_t at = 0; at < text.size();) {
    const Character character = character_at(text, at);
    take(character.code, text.substr(at, character.length));
    at += character.length;
  }
}

/// Length of the first grapheme cluster of a non-empty text.
size_t grapheme_length(std::string_view text);

}  // namespace alibi::text::tokenizers
