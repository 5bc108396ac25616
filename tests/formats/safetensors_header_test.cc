// Headers that lie. Whatever the bytes are, parsing ends with an Error or with places that lie inside the file.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "core/random.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "formats/safetensors_samples.h"
#include "testing.h"

namespace alibi::formats {
namespace {

using test::ExactBytes;
using test::expect_error;
using test::reference_file;
using test::safetensors_file;

SafetensorsHeader parse(const std::string& file) {
  const ExactBytes bytes(file);
  return parse_safetensors_header(bytes.span(), "f");
}

void expect_places_inside(const SafetensorsHeader& header, size_t file_bytes) {
  size_t at = header.tensors.empty() ? file_bytes : header.tensors.front().begin;
  for (const TensorInfo& info : header.tensors) {
    ASSERT_EQ(info.begin, at);
    ASSERT_LE(info.begin, info.end);
    at = info.end;
    for (const int64_t extent : info.shape) ASSERT_GE(extent, 0);
  }
  ASSERT_EQ(at, file_bytes);
}

TEST(SafetensorsHeader, ReadsWhatTheReferenceImplementationWrites) {
  const std::string file = reference_file();
  const SafetensorsHeader header = parse(file);
  ASSERT_EQ(header.tensors.size(), 4u);
  EXPECT_EQ(header.tensors[0].name, "empty");
  EXPECT_EQ(header.tensors[0].shape, (Shape{0, 3}));
  EXPECT_EQ(header.tensors[1].name, "scalar");
  EXPECT_EQ(header.tensors[1].shape, Shape{});
  EXPECT_EQ(header.tensors[3].dtype, "F16");
  EXPECT_EQ(header.tensors[3].end, file.size());
  EXPECT_EQ(header.metadata.at("by"), "test");
  expect_places_inside(header, file.size());
}

TEST(SafetensorsHeader, EveryTruncationIsRefused) {
  const std::string file = reference_file();
  for (size_t size = 0; size < file.size(); ++size) EXPECT_THROW(parse(file.substr(0, size)), Error) << size;
  EXPECT_THROW(parse(file + "x"), Error);
  EXPECT_NO_THROW(parse(file));
}

TEST(SafetensorsHeader, EveryFlippedByteIsRefusedOrHarmless) {
  const std::string good = reference_file();
  int refused = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int flip : {0x01, 0x02, 0x10, 0x40, 0x80, 0xff}) {
      std::string file = good;
      file[at] = static_cast<char>(file[at] ^ flip);
      try {
        expect_places_inside(parse(file), file.size());
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(SafetensorsHeader, RandomChangesAreRefusedOrHarmless) {
  const std::string good = reference_file();
  const std::string alphabet = "{}[]\",:0123456789-.eFBIU_adhstpe \xff";
  for (uint64_t round = 0; round < 5000; ++round) {
    const core::Random random(5, round);
    std::string file = good;
    const uint64_t changes = 1 + random.below(0, 6);
    for (uint64_t i = 1; i <= changes; ++i) {
      const size_t at = random.below(2 * i, file.size());
      const char c = alphabet[random.below(2 * i + 1, alphabet.size())];
      if (i % 3 == 0) {
        file.insert(file.begin() + static_cast<std::ptrdiff_t>(at), c);
      } else {
        file[at] = c;
      }
    }
    try {
      expect_places_inside(parse(file), file.size());
    } catch (const Error&) {
    }
  }
}

TEST(SafetensorsHeader, LiesAreNamed) {
  struct Lie {
    std::string entry;
    std::string message;
  };
  const std::vector<Lie> lies = {
      {R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]})", "spans 4 bytes, expected those of F32 [2]"},
      {R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]})", "spans 8 bytes, expected those of F32 [1]"},
      {R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,16]})", "expected a range within the 8 bytes"},
      {R"("a":{"dtype":"F32","shape":[2],"data_offsets":[4,0]})", "data_offsets is [4, 0]"},
      {R"("a":{"dtype":"F32","shape":[2],"data_offsets":[-8,0]})", "data_offsets is [-8, 0]"},
      {R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})", "has 3 numbers, expected 2"},
      {R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,1e18]})", "data_offsets"},
      {R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551608]})", "data_offsets"},
      {R"("a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", "no negative extent"},
      {R"("a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,8]})", "expected a list of integers"},
      {R"("a":{"dtype":"F32","shape":[1000000000000000000],"data_offsets":[0,8]})", "spans 8 bytes"},
      {R"("a":{"dtype":"F32","shape":[4611686018427387904,2],"data_offsets":[0,8]})", "spans 8 bytes"},
      {R"("a":{"dtype":"F32","shape":[9223372036854775807,9223372036854775807,0],"data_offsets":[0,0]})", "spans 0"},
      {R"("a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]})", "17 axes"},
      {R"("a":{"dtype":7,"shape":[2],"data_offsets":[0,8]})", "f: \"a\".dtype is 7, expected a string"},
      {R"("a":{"shape":[2],"data_offsets":[0,8]})", "f: \"a\".dtype is missing"},
      {R"("a":{"dtype":"F5","shape":[2],"data_offsets":[0,8]})", "f: \"a\".dtype is \"F5\", which is not a type"},
      {R"("a":{"dtype":"F4","shape":[15],"data_offsets":[0,8]})", "spans 8 bytes, expected those of F4 [15]"},
      {R"("a":{"dtype":"F4","shape":[17],"data_offsets":[0,8]})", "spans 8 bytes, expected those of F4 [17]"},
      {R"("a":{"dtype":"F4","shape":[1048576,1048576],"data_offsets":[0,8]})",
       "expected those of F4 [1048576, 1048576]"},
      {R"("a":{"dtype":"F6_E2M3","shape":[8],"data_offsets":[0,8]})", "spans 8 bytes, expected those of F6_E2M3 [8]"},
      {R"("a":[1])", "f: \"a\" is an array of 1, expected an object"},
      {R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})", "4 bytes after its last tensor"},
      {R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})", "there is a gap"},
      {R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})",
       "there is an overlap"},
      {R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})",
       "\"a\" occurs twice"},
      {R"("__metadata__":{"n":1})", "__metadata__.n is 1, expected a string"},
      {R"("__metadata__":"text")", "__metadata__ is \"text\", expected an object"},
      {R"("a":{"dtype":"F32","shape":[[[[[2]]]]],"data_offsets":[0,8]})", "expected a list of integers"},
  };
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.entry);
    expect_error([&] { parse(safetensors_file("{" + lie.entry + "}", 8)); }, lie.message);
  }
}

TEST(SafetensorsHeader, TypesOfLessThanAByteFillWholeBytes) {
  const SafetensorsHeader header =
      parse(safetensors_file(R"({"a":{"dtype":"F4","shape":[2,4],"data_offsets":[0,4]},)"
                             R"("b":{"dtype":"F6_E3M2","shape":[4],"data_offsets":[4,7]}})",
                             7));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[1].end - header.tensors[1].begin, 3u);
}

TEST(SafetensorsHeader, LengthsThatLieAreRefusedBeforeAnythingIsAllocated) {
  const std::string good = safetensors_file("{}", 0);
  EXPECT_TRUE(parse(good).tensors.empty());
  for (const uint64_t length : {uint64_t{3}, uint64_t{kMaxJsonBytes}, uint64_t{kMaxJsonBytes} + 1, uint64_t{1} << 63,
                                ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string file = good;
    std::memcpy(file.data(), &length, 8);
    expect_error([&] { parse(file); }, "gives a header of");
  }
  // Larger than JSON may be, though the file has it.
  expect_error([&] { parse(safetensors_file(std::string(kMaxJsonBytes + 1, ' '), 0)); }, "expected at most 16777216");
  expect_error([&] { parse(safetensors_file(std::string(5'000'000, '['), 0)); }, "nests deeper");
  expect_error([&] { parse(safetensors_file("[]", 0)); }, "expected an object");
  expect_error([&] { parse(std::string("GGUF")); }, "has 4 bytes, expected at least 8");
}

TEST(SafetensorsHeader, ManyTensorsAreReadInReasonableTime) {
  std::string header = "{";
  for (int i = 0; i < 50'000; ++i) {
    const std::string at = std::to_string(i);
    header += (i > 0 ? ",\"t" : "\"t") + at + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + at + "," +
              std::to_string(i + 1) + "]}";
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(parse(safetensors_file(header + "}", 50'000)).tensors.size(), 50'000u);
  // Under a second; minutes where a parser takes quadratic time in the number of keys.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

}  // namespace
}  // namespace alibi::formats
