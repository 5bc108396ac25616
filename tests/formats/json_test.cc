#include "formats/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <new>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/random.h"
#include "formats/json_copy.h"
#include "limited_allocations.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::formats {
namespace {

using test::expect_error;
using test::TemporaryFolder;

JsonObject object_of(const std::string& text) { return {parse_json(text, "f.json"), "f.json: "}; }

TEST(Json, TypedValues) {
  const JsonObject json = object_of(
      R"({"yes": true, "n": -7, "whole": 4.0, "x": 0.5, "s": "text", "list": [1, 2.0], "names": ["a"], "null": null,
          "nested": {"deep": {"n": 3}}})");
  EXPECT_TRUE(json.get<bool>("yes"));
  EXPECT_EQ(json.get<int64_t>("n"), -7);
  EXPECT_EQ(json.get<int64_t>("whole"), 4);
  EXPECT_EQ(json.get<double>("x"), 0.5);
  EXPECT_EQ(json.get<double>("n"), -7.0);
  EXPECT_EQ(json.get<std::string>("s"), "text");
  EXPECT_EQ(json.get<std::vector<int64_t>>("list"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(json.get<std::vector<std::string>>("names"), std::vector<std::string>{"a"});
  EXPECT_EQ(json.object("nested").object("deep").get_int("n", 0, 3), 3);
  EXPECT_EQ(json.keys().size(), json.size());

  EXPECT_FALSE(json.has("null"));
  EXPECT_EQ(json.get_or<int64_t>("null", 5), 5);
  EXPECT_EQ(json.get_or("missing", "default"), "default");
  EXPECT_EQ(json.get_int_or("missing", -1, 0, 3), -1);
  EXPECT_EQ(json.get_number_or("x", 0, 0, 1), 0.5);
  EXPECT_EQ(json.object_or_empty("missing").size(), 0u);
}

TEST(Json, ErrorsNameFileKeyFoundAndExpected) {
  const JsonObject json =
      object_of(R"({"n": "7", "x": 1.5, "big": 18446744073709551615, "huge": 1e300, "list": [1, "2"],
                                        "inner": {"yes": 1}, "long": ")" +
                std::string(200, 'x') + "\"}");
  expect_error([&] { json.get<int64_t>("n"); }, "f.json: n is \"7\", expected an integer");
  expect_error([&] { json.get<int64_t>("x"); }, "f.json: x is 1.5, expected an integer");
  expect_error([&] { json.get<int64_t>("big"); }, "big is 18446744073709551615, expected an integer");
  expect_error([&] { json.get<int64_t>("huge"); }, "huge is 1e+300, expected an integer");
  const JsonObject pairs = object_of(R"({"good": [[1, 2.5], [], [3]], "bad": [[1], 2]})");
  EXPECT_EQ(pairs.get<std::vector<std::vector<double>>>("good"), (std::vector<std::vector<double>>{{1, 2.5}, {}, {3}}));
  expect_error([&] { pairs.get<std::vector<std::vector<double>>>("bad"); }, "expected a list of lists of numbers");
  expect_error([&] { json.get<std::vector<int64_t>>("list"); }, "list is an array of 2, expected a list of integers");
  expect_error([&] { json.get<bool>("none"); }, "f.json: none is missing");
  expect_error([&] { json.object("inner").get<bool>("yes"); }, "f.json: inner.yes is 1, expected true or false");
  expect_error([&] { json.object("n"); }, "f.json: n is \"7\", expected an object");
  expect_error([&] { json.get_number("x", 0, 1); }, "x is 1.5, expected 0 to 1");
  expect_error([&] { json.get_number("x", 2, 3); }, "x is 1.5, expected 2 to 3");
  expect_error([&] { object_of(R"({"n": 5})").get_int("n", 1, 4); }, "n is 5, expected 1 to 4");
  expect_error([&] { json.get<bool>("long"); }, "xxx..., expected true");
  expect_error([&] { object_of("[1]"); }, "f.json is an array of 1, expected an object");
}

TEST(Json, TheEndsOfARangeBelongToIt) {
  const JsonObject json = object_of(R"({"n": 5, "x": 0.5})");
  EXPECT_EQ(json.get_int("n", 5, 9), 5);
  EXPECT_EQ(json.get_int("n", 1, 5), 5);
  expect_error([&] { json.get_int("n", 6, 9); }, "expected 6 to 9");
  EXPECT_EQ(json.get_number("x", 0.5, 1), 0.5);
  EXPECT_EQ(json.get_number("x", 0, 0.5), 0.5);
  EXPECT_EQ(object_of(R"({"big": 9223372036854775807})").get<int64_t>("big"), INT64_MAX);
  EXPECT_EQ(object_of(R"({"low": -9223372036854775808})").get<int64_t>("low"), INT64_MIN);
}

TEST(Json, DamagedTextsGiveTheirPlace) {
  expect_error([] { parse_json("{\"a\": 1,\n  b}", "c.json"); }, "[json] c.json: parse error at line 2, column 3");
  expect_error([] { parse_json("", "c.json"); }, "[json] c.json: parse error at line 1");
  expect_error([] { parse_json("{} {}", "c.json"); }, "c.json: parse error");
  expect_error([] { parse_json("{\"a\": \"\xff\"}", "c.json"); }, "c.json: parse error");
  expect_error([] { parse_json("{\"a\": NaN}", "c.json"); }, "c.json: parse error");
  expect_error([] { parse_json("{\"a\": 1e999}", "c.json"); }, "c.json: ");
  expect_error([] { parse_json(R"({"a": 1, "b": {"a": 2, "c": 3}, "a": 4})", "c.json"); }, "\"a\" occurs twice");
}

TEST(Json, DeepNestingIsRefusedBeforeItHurts) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_json(nested(kMaxJsonDepth), "c.json"));
  expect_error([&] { parse_json(nested(kMaxJsonDepth + 1), "c.json"); }, "nests deeper than 64");
  expect_error([&] { parse_json(std::string(10'000'000, '['), "c.json"); }, "nests deeper");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  expect_error([&] { parse_json(objects, "c.json"); }, "nests deeper");
}

TEST(Json, ParsingAndFreeingSurviveTheLackOfMemoryAtAnyPoint) {
  if (!test::kLimitsAllocations) GTEST_SKIP() << "the thread sanitizer has an operator new of its own";
  const std::string text =
      R"({"a": [1, [2.5, "text that is longer than a small string"], {"b": [[], {}]}], "c": {"d": {"e": null}}})";
  int64_t allowed = 0;
  for (bool done = false; !done; ++allowed) {
    test::LimitedAllocations limit(allowed);
    try {
      const SharedJson json = parse_json(text, "f");
      const JsonObject part = JsonObject(json, "f: ").object("c");
      done = part.has("d");
    } catch (const std::bad_alloc&) {
    }
  }
  EXPECT_GT(allowed, 20);
}

TEST(Json, RandomTextsNeverCrash) {
  const std::string alphabet = "{}[]\",:0123456789.eE+-truefalsn\\u \n\xc3\xa9\xff";
  const std::string good = R"({"a": [1, 2.5e3, true, null], "b": {"c": "d\u00e9\n"}, "e": -0})";
  int parsed = 0;
  for (uint64_t round = 0; round < 20000; ++round) {
    const core::Random random(11, round);
    std::string text = good;
    const uint64_t changes = 1 + random.below(0, 4);
    for (uint64_t i = 1; i <= changes; ++i) {
      text[random.below(2 * i, text.size())] = alphabet[random.below(2 * i + 1, alphabet.size())];
    }
    if (round % 3 == 0) text.resize(random.below(100, text.size()));
    try {
      parse_json(text, "f");
      ++parsed;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(parsed, 100);
  EXPECT_LT(parsed, 19000);
}

TEST(Json, FilesAreReadAndWritten) {
  const TemporaryFolder folder;
  const auto path = folder / "config.json";
  write_json(path, {{"z", 1}, {"a", {1.5, nullptr}}, {"text", "caf\xc3\xa9"}});
  EXPECT_EQ(core::read_file(path),
            "{\n  \"z\": 1,\n  \"a\": [\n    1.5,\n    null\n  ],\n  \"text\": \"caf\xc3\xa9\"\n}\n");
  EXPECT_EQ(read_json_object(path).get<std::string>("text"), "caf\xc3\xa9");
  expect_error([&] { read_json_object(path).get<bool>("z"); }, path.string() + ": z is 1");
  // What is too large is refused before it is read: memory is many times the size.
  std::filesystem::resize_file(folder.write("large.json", ""), kMaxJsonBytes + 1);
  expect_error([&] { read_json_object(folder / "large.json"); }, "large.json");
  expect_error([&] { read_json_object(path, 10); }, path.string());
  expect_error([&] { read_json_object(folder / "missing.json"); }, "missing.json");
  folder.write("list.json", "[]");
  expect_error([&] { read_json_object(folder / "list.json"); }, "list.json is an array of 0");
}

TEST(Json, WhatJsonCannotExpressIsReplaced) {
  EXPECT_EQ(to_text({{"nan", std::nan("")}, {"inf", std::numeric_limits<double>::infinity()}}),
            "{\n  \"nan\": null,\n  \"inf\": null\n}\n");
  EXPECT_EQ(to_text({{"s", "a\xff"}}), "{\n  \"s\": \"a\xef\xbf\xbd\"\n}\n");
}

TEST(Json, NumbersSurviveTheRoundTrip) {
  for (uint64_t i = 0; i < 2000; ++i) {
    const double value =
        std::ldexp(static_cast<double>(core::Random(3).block(i)[0]) - 2e9, static_cast<int>(i % 600) - 300);
    EXPECT_EQ(object_of(to_text({{"x", value}})).get<double>("x"), value);
  }
}

TEST(Json, NumbersThatAreCopiedKeepTheirCharacters) {
  const std::string line =
      R"({"id":18446744073709551616,"list":[1.10,-0.0,1E5,{"a":123456789012345678901234567890}],"small":7,"text":"1.10"})";
  const SharedJson written = parse_json_to_copy(line, "test");
  EXPECT_EQ(to_line(OrderedJson(*written)), line);
  EXPECT_EQ(to_text(OrderedJson(*written)), R"({
  "id": 18446744073709551616,
  "list": [
    1.10,
    -0.0,
    1E5,
    {
      "a": 123456789012345678901234567890
    }
  ],
  "small": 7,
  "text": "1.10"
}
)");
  // The layout is the library's.
  const auto plain = OrderedJson::parse(R"({"a": [1, {}, [], "b"], "c": {"d": 0.5}})");
  auto copy = plain;
  copy["c"]["d"] = OrderedJson::binary({'0', '.', '5'});
  EXPECT_EQ(to_line(copy), to_line(plain));
  EXPECT_EQ(to_text(copy), to_text(plain));
  // Into a copy whose keys have an order.
  const std::string ordered = R"({"z":1e30,"a":[0.10,{"y":2.0,"b":36893488147419103232}]})";
  auto kept = OrderedJson::parse(ordered);
  EXPECT_NE(to_line(kept), ordered);
  keep_numbers(*parse_json_to_copy(ordered, "test"), kept);
  EXPECT_EQ(to_line(kept), ordered);
}

}  // namespace
}  // namespace alibi::formats
