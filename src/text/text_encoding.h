// Checks whether bytes are text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace alibi::text {

/// Length of the well-formed UTF-8 sequence at `at`, or 0 if there is none. at < text.size(). Unicode 15, table 3-7: no
/// overlong forms, no surrogates, nothing above U+10FFFF.
size_t utf8_sequence_length(std::string_view text, size_t at);

/// Counts the characters of a text that comes in pieces. Bytes outside of well-formed sequences count as in the
/// practice that Unicode recommends (chapter 3, "U+FFFD Substitution of Maximal Subparts"): one character for as many
/// of them as begin a sequence, else for each. JSON writers and Python's errors="replace" do the same.
class CharacterCount {
 public:
  /// Returns the number of characters before the one in which the first byte of `more` is.
  int64_t add(std::string_view more);
  /// Number of characters before the end, without the one that the next bytes may complete.
  int64_t count() const { return count_; }

 private:
  void extend(std::string_view more);

  int64_t count_ = 0;
  std::string rest_;  // the beginning of a character
};

/// Offsets of the bytes that are outside well-formed sequences, in rising order.
std::vector<size_t> malformed_bytes(std::string_view text);
/// The text with each of these bytes replaced by U+FFFD.
std::string well_formed(std::string_view text);

/// The reason why the bytes are not text, or an empty string if they are. Text has no NUL byte, and at most a tenth of
/// its bytes are control characters or outside well-formed UTF-8: stray bytes and Western text in an 8-bit encoding
/// pass, compressed files and programs do not.
std::string why_not_text(std::string_view bytes);

}  // namespace alibi::text
