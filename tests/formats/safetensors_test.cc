#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/files.h"
#include "formats/safetensors_samples.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::formats {
namespace {

using test::expect_error;
using test::random_ids;
using test::random_tensor;
using test::same_bits;
using test::TemporaryFolder;

TEST(Safetensors, RoundTripsAreBitwise) {
  const TemporaryFolder folder;
  const std::string path = (folder / "m.safetensors").string();
  Tensor strange = Tensor::from(std::vector<float>{NAN, -NAN, INFINITY, -INFINITY, -0.0f, 1e-45f}, {2, 3});
  const uint32_t payload = 0x7f800001;  // a signalling NaN must not be quietened on the way
  std::memcpy(strange.raw(), &payload, sizeof payload);
  const std::vector<NamedTensor> tensors = {
      {"weight", random_tensor({7, 13}, 1)},
      {"odd.bf16", random_tensor({3}, 2, 1, DType::bfloat16)},  // leaves what follows unaligned
      {"strange", strange},
      {"ids", random_ids({5, 1, 2}, 3, 1000)},
      {"scalar", random_tensor({}, 4)},
      {"empty", Tensor({0, 4})},
      {"large", random_tensor({300, 301}, 5)},
      {"caf\xc3\xa9 \"quoted\"\n", random_tensor({1}, 6)},
  };
  write_safetensors(path, tensors, {{"format", "pt"}, {"note", "line\nline"}});
  const Safetensors file(path);
  ASSERT_EQ(file.tensors().size(), tensors.size());
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"note", "line\nline"}}));
  for (const NamedTensor& named : tensors) {
    EXPECT_TRUE(same_bits(file.load(named.name), named.tensor)) << named.name;
    EXPECT_EQ(file.info(named.name).shape, named.tensor.shape());
  }
  EXPECT_FALSE(file.contains("weigh"));
  EXPECT_EQ(file.tensors().front().begin % 8, 0u);
}

TEST(Safetensors, TheFileIsAsTheFormatSays) {
  const TemporaryFolder folder;
  const auto path = folder / "m.safetensors";
  write_safetensors(path, {{"z", Tensor::from(std::vector<int32_t>{258}, {1})}, {"a", Tensor({2}, DType::bfloat16)}});
  const std::string header = R"({"__metadata__":{"format":"pt"},"z":{"dtype":"I32","shape":[1],"data_offsets":[0,4]},)"
                             R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[4,8]}})";
  const std::string padded = header + std::string((8 - header.size() % 8) % 8, ' ');
  const std::string expected = test::safetensors_file(padded, 0) + std::string("\x02\x01\0\0\0\0\0\0", 8);
  EXPECT_EQ(core::read_file(path), expected);
}

TEST(Safetensors, ReadsWhatTheReferenceImplementationWrites) {
  const TemporaryFolder folder;
  const Safetensors file(folder.write("m.safetensors", test::reference_file()));
  EXPECT_EQ(file.load("half").to_floats(), (std::vector<float>{1.5f, -0.25f}));
  EXPECT_EQ(file.load("ids").to_ints(), (std::vector<int32_t>{7, -8, 9}));
  EXPECT_EQ(file.load("ids").shape(), (Shape{3, 1}));
  EXPECT_EQ(file.load("scalar").to_floats(), std::vector<float>{2.5f});
  EXPECT_EQ(file.load("empty").shape(), (Shape{0, 3}));
}

TEST(Safetensors, FloatingPointTypesAreConverted) {
  const TemporaryFolder folder;
  const std::string path = (folder / "m.safetensors").string();
  const Tensor f32 = random_tensor({200, 999}, 7), bf16 = random_tensor({5, 3}, 8, 1, DType::bfloat16);
  write_safetensors(path, {{"pad", Tensor({1}, DType::bfloat16)}, {"f32", f32}, {"bf16", bf16}});
  const Safetensors file(path);
  test::expect_same_bits_at_any_thread_count([&] {
    Tensor narrow({200, 999}, DType::bfloat16), wide({5, 3});
    file.load_into("f32", narrow);
    file.load_into("bf16", wide);
    EXPECT_TRUE(same_bits(narrow, f32.to(DType::bfloat16)));
    EXPECT_TRUE(same_bits(wide, bf16.to(DType::float32)));
    return std::vector<Tensor>{narrow, wide};
  });
  const Safetensors halves(folder.write("half.safetensors", test::reference_file()));
  Tensor narrow({2}, DType::bfloat16);
  halves.load_into("half", narrow);
  EXPECT_EQ(narrow.to_floats(), (std::vector<float>{1.5f, -0.25f}));
}

TEST(Safetensors, LoadingIntoTheWrongTensorIsAnError) {
  const TemporaryFolder folder;
  const std::string path = (folder / "m.safetensors").string();
  write_safetensors(path, {{"w", random_tensor({2, 3}, 1)}, {"i", Tensor({2}, DType::int32)}});
  const Safetensors file(path);
  Tensor other({3, 2}), ints({2, 3}, DType::int32), floats({2});
  expect_error([&] { file.load_into("w", other); }, path + ": \"w\" has the shape [2, 3], expected [3, 2]");
  expect_error([&] { file.load_into("w", ints); }, "\"w\" is of type F32, expected int32");
  expect_error([&] { file.load_into("i", floats); }, "\"i\" is of type I32, expected float32");
  Tensor strided = Tensor({2, 6}).slice(1, 0, 3);
  expect_error([&] { file.load_into("w", strided); }, "not contiguous");
  expect_error([&] { file.load("v"); }, path + ": has no tensor \"v\"");
}

TEST(Safetensors, TypesThatCannotBeLoadedAreListedOnly) {
  const TemporaryFolder folder;
  const Safetensors file(
      folder.write("m.safetensors", test::safetensors_file(R"({"d":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
                                                           R"("new":{"dtype":"F4","shape":[4],"data_offsets":[8,10]}})",
                                                           10)));
  EXPECT_EQ(file.tensors().size(), 2u);
  expect_error([&] { file.load("d"); }, "\"d\" is of type F64, expected F32, F16, BF16, Q8_0");
  expect_error([&] { file.load("new"); }, "is of type F4");
}

TEST(Safetensors, RowsWithGapsAreWrittenWithoutThem) {
  const TemporaryFolder folder;
  const Tensor wide = Tensor::from(std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {3, 4});
  write_safetensors(folder / "m.safetensors", {{"a", wide.slice(1, 1, 3)}});
  const Tensor read = Safetensors(folder / "m.safetensors").load("a");
  EXPECT_EQ(read.shape(), (Shape{3, 2}));
  EXPECT_EQ(read.to_floats(), (std::vector<float>{1, 2, 5, 6, 9, 10}));
}

TEST(Safetensors, WhatCannotBeWrittenIsNamedAndLeavesNoFile) {
  const TemporaryFolder folder;
  const auto path = folder / "m.safetensors";
  const Tensor t({2, 2});
  expect_error([&] { write_safetensors(path, {{"a", t}, {"a", t}}); }, "the name \"a\" is taken");
  expect_error([&] { write_safetensors(path, {{"__metadata__", t}}); }, "is taken");
  const Tensor transposed = Tensor::view(t.raw(), {2, 2}, DType::float32, {1, 2});
  expect_error([&] { write_safetensors(path, {{"a", transposed}}); }, "\"a\" is not contiguous");
  expect_error([&] { write_safetensors(path, {{"a", Tensor()}}); }, "\"a\" is undefined");
  expect_error([&] { write_safetensors(path, {{"\xff", t}}); }, "not UTF-8");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  expect_error([&] { write_safetensors(folder / "no" / "file", {{"a", t}}); }, "[write]");
}

TEST(Safetensors, DamagedFilesGiveErrorsNotCrashes) {
  const TemporaryFolder folder;
  const std::string good = test::reference_file();
  const auto load_all = [&](const std::string& bytes) {
    const Safetensors file(folder.write("m.safetensors", bytes));
    for (const TensorInfo& info : file.tensors()) {
      try {
        file.load(info.name);
      } catch (const Error&) {
      }
    }
  };
  for (size_t size = 0; size < good.size(); size += 5) EXPECT_THROW(load_all(good.substr(0, size)), Error) << size;
  for (size_t at = 0; at < good.size(); at += 3) {  // the header's own tests take every byte
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
    try {
      load_all(bytes);
    } catch (const Error&) {
    }
  }
}

TEST(Safetensors, AFolderIsOneFileOrSeveralWithAnIndex) {
  const TemporaryFolder folder;
  expect_error([&] { Safetensors{folder.path()}; },
               "contains neither model.safetensors nor model.safetensors.index.json");
  expect_error([&] { Safetensors{folder / "missing.safetensors"}; }, "missing.safetensors");
  const Tensor a = random_tensor({4}, 1), b = random_tensor({5}, 2), c = random_tensor({6}, 3);
  write_safetensors(folder / "part-1.safetensors", {{"a", a}, {"b", b}});
  write_safetensors(folder / "part-2.safetensors", {{"c", c}});
  const auto write_index = [&](const std::string& map) {
    folder.write("model.safetensors.index.json", R"({"metadata": {"total_size": 60}, "weight_map": )" + map + "}");
  };
  write_index(R"({"a": "part-1.safetensors", "b": "part-1.safetensors", "c": "part-2.safetensors"})");
  const Safetensors file(folder.path());
  EXPECT_EQ(file.tensors().size(), 3u);
  EXPECT_TRUE(same_bits(file.load("b"), b));
  EXPECT_TRUE(same_bits(file.load("c"), c));

  write_index(R"({"a": "part-2.safetensors"})");
  expect_error([&] { Safetensors{folder.path()}; },
               "places \"a\" in \"part-2.safetensors\", which does not contain it");
  write_index(R"({"a": "part-2.safetensors", "b": "part-1.safetensors", "c": "part-2.safetensors"})");
  expect_error([&] { Safetensors{folder.path()}; },
               "places \"a\" in \"part-2.safetensors\", which does not contain it");
  for (const char* outside : {"../part-1.safetensors", "/etc/passwd", "", "..", "sub/part"}) {
    write_index(R"({"a": ")" + std::string(outside) + "\"}");
    expect_error([&] { Safetensors{folder.path()}; }, "expected the name of a file beside the index");
  }
  write_index(R"({"a": 1})");
  expect_error([&] { Safetensors{folder.path()}; }, "weight_map.a is 1, expected a string");
  write_index(R"({"a": "part-3.safetensors"})");
  expect_error([&] { Safetensors{folder.path()}; }, "part-3.safetensors");
  write_safetensors(folder / "part-3.safetensors", {{"a", a}});
  write_index(R"({"a": "part-3.safetensors", "b": "part-1.safetensors"})");
  expect_error([&] { Safetensors{folder.path()}; }, "\"a\" is also in");

  write_safetensors(folder / "model.safetensors", {{"d", a}});
  EXPECT_TRUE(Safetensors(folder.path()).contains("d"));  // the single file comes first
}

}  // namespace
}  // namespace alibi::formats
