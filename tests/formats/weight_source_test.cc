#include "formats/weight_source.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "bytes_touched.h"
#include "formats/safetensors.h"
#include "formats/safetensors_samples.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::formats {
namespace {

using test::expect_error;
using test::random_tensor;
using test::TemporaryFolder;

TEST(WeightSource, ASparseFileOf13GbIsNotReadWhenItIsOpened) {
  const TemporaryFolder folder;
  std::string header = "{";
  uint64_t begin = 0;
  for (int i = 0; i < 400; ++i) {
    const uint64_t end = begin + uint64_t{4096} * 4096 * 2;
    header += fmt::format(R"({}"layers.{}.weight":{{"dtype":"BF16","shape":[4096,4096],"data_offsets":[{},{}]}})",
                          i > 0 ? "," : "", i, begin, end);
    begin = end;
  }
  header += "}";
  const std::string path = folder.write("model.safetensors", test::safetensors_file(header, 0));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + begin);
  ASSERT_GT(std::filesystem::file_size(path), uint64_t{13} * 1000 * 1000 * 1000);

  const int64_t before = test::bytes_touched();
  const Safetensors file(folder.path());
  EXPECT_LT(test::bytes_touched(), before + (int64_t{100} << 20));
  EXPECT_EQ(file.tensors().size(), 400u);
  Tensor rows = Tensor::empty({16, 4096}, DType::bfloat16);
  file.load_rows_into("layers.399.weight", 4080, rows);  // reads these alone
  EXPECT_LT(test::bytes_touched(), before + (int64_t{100} << 20));
}

TEST(WeightSource, ReadsRowsOfEachType) {
  const TemporaryFolder folder;
  const Tensor values = random_tensor({5, 2, 3}, 1), rounded = random_tensor({5, 4}, 2, 1, DType::bfloat16);
  write_safetensors(folder / "model.safetensors", {{"f32", values}, {"bf16", rounded}});
  const Safetensors file(folder.path());
  Tensor some = Tensor::empty({2, 2, 3});
  file.load_rows_into("f32", 3, some);
  EXPECT_EQ(some.to_floats(), values.slice(0, 3, 5).to_floats());
  Tensor halves = Tensor::empty({1, 4}, DType::bfloat16), floats = Tensor::empty({4, 4});
  file.load_rows_into("bf16", 2, halves);
  EXPECT_EQ(halves.to_floats(), rounded.slice(0, 2, 3).to_floats());
  file.load_rows_into("bf16", 1, floats);
  EXPECT_EQ(floats.to_floats(), rounded.slice(0, 1, 5).to_floats());
  for (const int64_t first : {-1, 2, 5}) {
    expect_error([&] { file.load_rows_into("bf16", first, floats); }, "\"bf16\" has the shape [5, 4]");
  }
}

TEST(WeightSource, Transposes) {
  const TemporaryFolder folder;
  // Wide enough that it is read in several pieces.
  const Tensor values = random_tensor({70, 100'003}, 1, 1, DType::bfloat16);
  write_safetensors(folder / "model.safetensors", {{"wide", values}});
  const Safetensors file(folder.path());
  Tensor out = Tensor::empty({100'003, 70});
  file.load_transposed_into("wide", out);
  const std::vector<float> expected = values.to_floats(), found = out.to_floats();
  for (size_t i = 0; i < 70; ++i) {
    for (size_t j = 0; j < 100'003; ++j) ASSERT_EQ(found[j * 70 + i], expected[i * 100'003 + j]);
  }
  Tensor wrong = Tensor::empty({70, 100'003});
  expect_error([&] { file.load_transposed_into("wide", wrong); }, "\"wide\" has the shape");
}

TEST(WeightSource, PickledWeightsAreRefusedWithAdvice) {
  const TemporaryFolder folder;
  folder.write("pytorch_model.bin", "PK");
  expect_error([&] { Safetensors(folder.path()); }, "pytorch_model.bin");
  expect_error([&] { Safetensors(folder.path()); }, "save_pretrained");
}

TEST(WeightSource, OtherSafetensorsFilesOfTheFolderAreNotRead) {
  const TemporaryFolder folder;
  write_safetensors(folder / "model.safetensors", {{"a", random_tensor({2}, 1)}});
  write_safetensors(folder / "expected.safetensors", {{"a", random_tensor({2}, 2)}, {"b", random_tensor({2}, 3)}});
  const Safetensors file(folder.path());
  EXPECT_EQ(file.tensors().size(), 1u);
  EXPECT_EQ(file.load("a").to_floats(), random_tensor({2}, 1).to_floats());
}

TEST(WeightSource, AnIndexWithoutTensorsIsRefused) {
  const TemporaryFolder folder;
  folder.write("model.safetensors.index.json", R"({"weight_map": {}})");
  expect_error([&] { Safetensors(folder.path()); }, "weight_map is empty");
}

}  // namespace
}  // namespace alibi::formats
