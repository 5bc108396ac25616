#include "formats/gguf.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "core/float16.h"
#include "formats/gguf_samples.h"
#include "limited_allocations.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::formats {
namespace {

using test::expect_error;
using test::GgufWriter;
using test::TemporaryFolder;

std::string halves(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) bytes += GgufWriter::raw(core::float_to_float16(value));
  return bytes;
}

/// A block of Q8_0 whose element i is d * (i - 16).
std::string q8_0_block(float d) {
  std::string bytes = halves({d});
  for (int i = 0; i < 32; ++i) bytes += static_cast<char>(i - 16);
  return bytes;
}

GgufWriter good() {
  GgufWriter writer;
  writer.string("general.architecture", "mpt").integer("mpt.block_count", 2).number("epsilon", 0.5f);
  writer.key("flags", 9, GgufWriter::raw(uint32_t{7}) + GgufWriter::raw(uint64_t{2}) + std::string("\0\1", 2));
  writer.key(
      "names", 9,
      GgufWriter::raw(uint32_t{8}) + GgufWriter::raw(uint64_t{2}) + GgufWriter::text("a") + GgufWriter::text("bc"));
  writer.tensor("plain", {2, 3}, 0, std::string(24, '\0'));
  writer.tensor("half", {2}, 1, halves({1.5f, -2}));
  writer.tensor("blocks", {2, 32}, 8, q8_0_block(0.25f) + q8_0_block(2));
  return writer;
}

TEST(Gguf, GivesMetadataAndTensors) {
  const TemporaryFolder folder;
  const Gguf file(folder.write("m.gguf", good().file()));
  EXPECT_EQ(file.metadata().get<std::string>("general.architecture"), "mpt");
  EXPECT_EQ(file.metadata().get_int("mpt.block_count", 0, 10), 2);
  EXPECT_EQ(file.metadata().get<double>("epsilon"), 0.5);
  EXPECT_EQ(file.metadata().get<std::vector<std::string>>("names"), (std::vector<std::string>{"a", "bc"}));
  EXPECT_EQ(file.metadata().raw().at("flags"), Json({false, true}));
  EXPECT_EQ(file.info("plain").shape, (Shape{2, 3}));
  EXPECT_EQ(file.load("half").to_floats(), (std::vector<float>{1.5f, -2}));
  const std::vector<float> blocks = file.load("blocks").to_floats();
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(blocks[static_cast<size_t>(i)], (i < 32 ? 0.25f : 2.0f) * static_cast<float>(i % 32 - 16)) << i;
  }
  Tensor second = Tensor::empty({1, 32});
  file.load_rows_into("blocks", 1, second);
  EXPECT_EQ(second.to_floats().front(), -32);
}

TEST(Gguf, EveryTruncationIsAnError) {
  const TemporaryFolder folder;
  const std::string whole = good().file();
  for (size_t size = 0; size < whole.size(); ++size) {
    expect_error([&] { Gguf(folder.write("m.gguf", whole.substr(0, size))); }, "m.gguf");
  }
}

TEST(Gguf, RefusesWhatDoesNotFit) {
  const TemporaryFolder folder;
  const auto refuses = [&](const GgufWriter& writer, const char* named) {
    expect_error([&] { Gguf(folder.write("m.gguf", writer.file())); }, named);
  };
  GgufWriter writer = good();
  writer.version = 0x03000000;
  refuses(writer, "version is 50331648");
  for (const uint64_t count : {uint64_t{1} << 31, uint64_t{1} << 63, ~uint64_t{0}}) {
    writer = good();
    writer.keys = count;
    refuses(writer, "m.gguf");
    writer = good();
    writer.tensors = count;
    refuses(writer, "m.gguf");
    refuses(good().key("long", 9, GgufWriter::raw(uint32_t{4}) + GgufWriter::raw(count)), "long is a list of");
    refuses(good().tensor("huge", {count}, 0, ""), "huge");
    refuses(good().tensor("huge", {uint64_t{1} << 32, uint64_t{1} << 32, 32}, 8, ""), "huge");
  }
  refuses(good().key("nested", 9, GgufWriter::raw(uint32_t{9}) + GgufWriter::raw(uint64_t{1})), "nested is a list of");
  refuses(good().key("strange", 77, "1234"), "strange is a value of type 77");
  refuses(good().integer("mpt.block_count", 3), "mpt.block_count occurs twice");
  refuses(good().tensor("plain", {1}, 0, "1234"), "\"plain\" is also in");
  refuses(good().tensor("odd", {31}, 8, std::string(34, '\0')), "\"odd\" has rows of 31 elements");
  refuses(good().tensor("axes", {1, 1, 1, 1, 1}, 0, "1234"), "\"axes\" has 5 axes");
  refuses(good().tensor("empty", {0}, 0, ""), "\"empty\" has an extent of 0");
  refuses(good().tensor("iq", {256}, 20, std::string(300, '\0')), "\"iq\" is of type 20");
  for (const uint32_t alignment : {0u, 24u, 48u, 1u << 21}) {
    refuses(good().integer("general.alignment", alignment), "general.alignment is");
  }
  refuses(good().key("general.alignment", 10, GgufWriter::raw(uint64_t{32})), "general.alignment is 32");
}

/// What llama.cpp refuses, and bytes that nothing describes.
TEST(Gguf, TensorsFillTheFile) {
  const TemporaryFolder folder;
  const auto refuses = [&](const std::string& bytes, const char* named) {
    expect_error([&] { Gguf(folder.write("m.gguf", bytes)); }, named);
  };
  const std::string whole = good().file();
  Gguf(folder.write("m.gguf", whole));
  Gguf(folder.write("m.gguf", whole + std::string(28, '\0')));  // the last tensor has 68 bytes, padded to 96
  refuses(whole + std::string(29, '\0'), "\"blocks\", ends at byte");
  refuses(whole + whole, "\"blocks\", ends at byte");
  GgufWriter gap = good();
  gap.data.resize(gap.data.size() + 64);
  refuses(gap.tensor("late", {1}, 0, "1234").file(), "\"late\" begins at byte");
  // A tensor of another type than the bytes that are there: float16 for float32, in the middle and at the end.
  const auto typed = [](uint32_t first, uint32_t last) {
    GgufWriter file;
    file.tensor("a", {64}, first, std::string(256, '\0')).tensor("b", {64}, last, std::string(256, '\0'));
    return file.file();
  };
  Gguf(folder.write("m.gguf", typed(0, 0)));
  refuses(typed(1, 0), "\"b\" begins at byte 256 of the data, expected 128");
  refuses(typed(0, 1), "\"b\", ends at byte");
  GgufWriter aligned;
  aligned.alignment = 8;
  aligned.integer("general.alignment", 8).tensor("a", {1}, 0, "1234").tensor("b", {1}, 0, "1234");
  EXPECT_EQ(Gguf(folder.write("m.gguf", aligned.file())).info("b").end, aligned.file().size());
  GgufWriter wrong = aligned;
  wrong.key_bytes.clear();
  wrong.keys = 0;
  refuses(wrong.file(), "\"b\" begins at byte 8 of the data, expected 32");
}

TEST(Gguf, AllPartsOfASplitFileAreRead) {
  const auto short_integer = [](uint16_t value) { return GgufWriter::raw(value); };
  const auto part = [&](uint16_t number, uint16_t count, const std::string& name) {
    GgufWriter file;
    if (number == 0) file.string("general.architecture", "mpt");
    file.key("split.no", 2, short_integer(number)).key("split.count", 2, short_integer(count));
    file.key("split.tensors.count", 5, GgufWriter::raw(int32_t{3}));
    return file.tensor(name, {1}, 0, GgufWriter::raw(static_cast<float>(number))).file();
  };
  const TemporaryFolder folder;
  const auto write = [&] {
    folder.write("m-00001-of-00003.gguf", part(0, 3, "a"));
    folder.write("m-00002-of-00003.gguf", part(1, 3, "b"));
    folder.write("m-00003-of-00003.gguf", part(2, 3, "c"));
  };
  write();
  for (const char* given : {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"}) {
    const Gguf file(folder / given);
    EXPECT_EQ(file.metadata().get<std::string>("general.architecture"), "mpt");
    EXPECT_EQ(file.keys().front().name, "general.architecture");
    ASSERT_EQ(file.tensors().size(), 3);
    EXPECT_EQ(file.load("c").to_floats(), (std::vector<float>{2}));
  }
  const auto refuses = [&](const char* named) {
    expect_error([&] { Gguf(folder / "m-00001-of-00003.gguf"); }, named);
    write();
  };
  std::filesystem::remove(folder / "m-00002-of-00003.gguf");
  refuses("m-00002-of-00003.gguf: the file is missing; it is part 2 of 3");
  folder.write("m-00002-of-00003.gguf", part(2, 3, "b"));
  refuses("m-00002-of-00003.gguf: split.no and split.count say something else");
  folder.write("m-00002-of-00003.gguf", part(1, 3, "a"));
  refuses("\"a\" is also in");
  folder.write("m-00002-of-00003.gguf", good().file());
  refuses("m-00002-of-00003.gguf: split.no and split.count say something else");
  std::filesystem::rename(folder / "m-00001-of-00003.gguf", folder / "other.gguf");
  expect_error([&] { Gguf(folder / "other.gguf"); }, "expected a name like");
}

TEST(Gguf, ReadingSurvivesTheLackOfMemoryAtAnyPoint) {
  const std::string file = good().file();
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(file.data()), file.size());
  int64_t allowed = 0;
  for (bool done = false; !done; ++allowed) {
    test::LimitedAllocations limit(allowed);
    try {
      done = parse_gguf_header(bytes, "m.gguf").tensors.size() == 3;
    } catch (const std::bad_alloc&) {
    }
  }
  EXPECT_GT(allowed, 20);
}

}  // namespace
}  // namespace alibi::formats
