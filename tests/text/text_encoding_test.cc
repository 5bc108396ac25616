#include "text/text_encoding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "core/random.h"

namespace alibi::text {
namespace {

std::string encode_code_point(uint32_t code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((code >> shift) & 0x3f)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xc0 | (code >> 6)), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xe0 | (code >> 12)), tail(6), tail(0)};
  return {static_cast<char>(0xf0 | (code >> 18)), tail(12), tail(6), tail(0)};
}

TEST(Utf8, EveryCodePointIsOneSequenceUnlessItIsASurrogate) {
  for (uint32_t code = 0; code < 0x120000; ++code) {
    const std::string bytes = encode_code_point(code);
    const bool valid = (code < 0xd800 || code > 0xdfff) && code <= 0x10ffff;
    ASSERT_EQ(utf8_sequence_length(bytes, 0), valid ? bytes.size() : 0u) << std::hex << code;
    if (bytes.size() > 1) {  // cut short, or with a wrong continuation
      ASSERT_EQ(utf8_sequence_length(std::string_view(bytes).substr(0, bytes.size() - 1), 0), 0u) << std::hex << code;
      std::string broken = bytes;
      broken.back() = 'x';
      ASSERT_EQ(utf8_sequence_length(broken, 0), 0u) << std::hex << code;
    }
  }
}

TEST(Utf8, OverlongFormsAndStrayBytesAreMalformed) {
  for (const char* bytes : {"\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xf0\x80\x80\x80",
                            "\xf0\x8f\xbf\xbf", "\xf5\x80\x80\x80", "\x80", "\xbf", "\xfe", "\xff"}) {
    EXPECT_EQ(utf8_sequence_length(bytes, 0), 0u) << bytes;
  }
}

TEST(Utf8, CharactersAreCountedAsAJsonWriterReplacesThem) {
  const core::Random random(5);
  auto drawn = [&, next = uint64_t{0}](uint64_t below) mutable { return random.bits(next++) % below; };
  const std::string_view parts[] = {"a",    "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xe2",
                                    "\x82", "\xf0\x9f", "\xed\xa0\x80", "\xe0\x80",         "\xf4\x90",
                                    "\xff", "\xc0",     "\xc3"};
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (uint64_t n = drawn(8); n > 0; --n) text += parts[drawn(std::size(parts))];
    CharacterCount count;
    for (size_t at = 0; at < text.size();) {  // in pieces
      const size_t bytes = std::min<size_t>(1 + drawn(3), text.size() - at);
      count.add(std::string_view(text).substr(at, bytes));
      at += bytes;
    }
    count.add("|");  // completes nothing
    const std::string written =
        nlohmann::json(text + "|").dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    const auto characters =
        std::count_if(written.begin(), written.end(), [](char c) { return (c & 0xc0) != 0x80; }) - 2;
    ASSERT_EQ(count.count(), characters) << written;
  }
  CharacterCount count;
  EXPECT_EQ(count.add("a\xe2"), 0);
  EXPECT_EQ(count.add("\x82"), 1);
  EXPECT_EQ(count.count(), 1);  // the euro sign is not complete
  EXPECT_EQ(count.add("\xac"), 1);
  EXPECT_EQ(count.add("\xe2"), 2);
  EXPECT_EQ(count.add("x"), 3);  // the byte before it is a character
  EXPECT_EQ(count.add(""), 4);
}

TEST(Utf8, EachStrayByteIsReplacedAlone) {
  const std::string text = "na\xc3\xafve \xe2\x82 \xff\xc3";
  EXPECT_EQ(malformed_bytes(text), (std::vector<size_t>{7, 8, 10, 11}));
  EXPECT_EQ(well_formed(text), "na\xc3\xafve \ufffd\ufffd \ufffd\ufffd");
  EXPECT_EQ(well_formed(""), "");
  EXPECT_EQ(well_formed("\x80"), "\ufffd");
  EXPECT_EQ(well_formed("plain"), "plain");
}

TEST(TextOrNot, WhatPeopleCallTextPasses) {
  EXPECT_EQ(why_not_text(""), "");
  EXPECT_EQ(why_not_text("plain\r\n\tascii\f\n"), "");
  EXPECT_EQ(why_not_text("\xef\xbb\xbf"
                         "with a byte order mark"),
            "");
  EXPECT_EQ(why_not_text("\xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x99\x82"), "");
  EXPECT_EQ(why_not_text("\x1b[1mbold\x1b[0m"), "");
  EXPECT_EQ(why_not_text("L'\xe9l\xe8ve pr\xe9sente un caf\xe9 au professeur de latin"), "");  // Latin-1, 4 of 48
}

TEST(TextOrNot, WhatPeopleCallBinaryDoesNot) {
  EXPECT_EQ(why_not_text(std::string("ab\0c", 4)), "byte 2 is NUL");
  EXPECT_NE(why_not_text("\x1f\x8b\x08\x12\x01\x02"), "");
  EXPECT_NE(why_not_text("\xcf\xf0\xe8\xe2\xe5\xf2, \xec\xe8\xf0"), "");  // Windows-1251
  EXPECT_EQ(why_not_text("123456789\xff"), "");
  EXPECT_EQ(why_not_text("12345678\xff"), "1 of its 9 bytes are control characters or not UTF-8");
}

}  // namespace
}  // namespace alibi::text
