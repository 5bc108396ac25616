// The data types and the places in memory of the weights of loaded models.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "alibi/context.h"
#include "alibi/language_model.h"
#include "alibi/runtime.h"
#include "bytes_touched.h"
#include "core/files.h"
#include "formats/safetensors.h"
#include "formats/safetensors_samples.h"
#include "formats/weight_types.h"
#include "model/families/model_files.h"
#include "nn/random_weights.h"
#include "nn/weights.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

using test::random_tensor;

constexpr int64_t kMptWidth = 64, kMptWords = 50;

/// An MPT of one layer with its feed-forward layer in two parts, one after the other in the file.
void write_mpt(const test::TemporaryFolder& folder, DType dtype, std::string_view more = "") {
  std::vector<formats::NamedTensor> tensors;
  const auto add = [&](const std::string& name, const Shape& shape, DType type) {
    tensors.push_back({"transformer." + name, random_tensor(shape, tensors.size() + 1, 0.3f, type)});
  };
  add("wte.weight", {kMptWords, kMptWidth}, dtype);
  for (const char* norm : {"norm_f", "blocks.0.norm_1", "blocks.0.norm_2"})
    add(std::string(norm) + ".weight", {kMptWidth}, dtype);
  add("blocks.0.attn.Wqkv.weight", {3 * kMptWidth, kMptWidth}, dtype);
  add("blocks.0.attn.out_proj.weight", {kMptWidth, kMptWidth}, dtype);
  add("blocks.0.ffn.down_proj.weight", {kMptWidth, 4 * kMptWidth}, dtype);
  add("blocks.0.ffn.gate_proj.weight", {4 * kMptWidth, kMptWidth}, dtype);
  add("blocks.0.ffn.up_proj.weight", {4 * kMptWidth, kMptWidth}, dtype);
  formats::write_safetensors(folder / "model.safetensors", tensors);
  folder.write("config.json",
               fmt::format(R"({{"model_type": "mpt", "d_model": 64, "n_heads": 4, "n_layers": 1, "vocab_size": 50,
    "max_seq_len": 16, "attn_config": {{"alibi": true}},
    "ffn_config": {{"ffn_type": "mptglu", "ffn_act_fn": {{"name": "silu"}}}}{}}})",
                           more));
}

Tensor some_ids(int64_t count) { return test::random_ids({1, count}, 5, kMptWords); }

bool is_mapped(const Tensor& value) { return core::is_mapped(value.raw()); }

TEST(LoadedWeights, MatricesStayInTheirFile) {
  for (const DType dtype : {DType::bfloat16, DType::float16, DType::float32}) {
    const test::TemporaryFolder folder;
    write_mpt(folder, dtype);
    const LanguageModel model = LanguageModel::load(folder.path());
    int64_t bytes = 0;
    for (const Parameter* parameter : model.parameters()) {
      const bool is_matrix = parameter->value.axes() == 2;
      EXPECT_EQ(parameter->value.dtype(), is_matrix ? dtype : DType::float32) << parameter->name;
      EXPECT_EQ(is_mapped(parameter->value), is_matrix) << parameter->name;  // gate and up too: they are neighbours
      bytes += parameter->value.elements() * (is_matrix ? static_cast<int64_t>(size_of(dtype)) : 4);
    }
    EXPECT_EQ(model.weight_bytes(), bytes);
    EXPECT_EQ(ModelFiles(folder.path()).types().front(), dtype);
  }
}

/// The same numbers in float32 give the same results but for the order of sums.
TEST(LoadedWeights, GiveTheResultsOfTheirFloat32Copies) {
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    const test::TemporaryFolder folder;
    write_mpt(folder, dtype);
    const LanguageModel model = LanguageModel::load(folder.path());
    LanguageModel wide = LanguageModel::load(folder.path());
    wide.to_float32();
    for (const int64_t tokens : {1, 8, 40, 700}) {
      const Tensor ids = some_ids(tokens);
      const Tensor expected = wide.logits(ids);
      EXPECT_TRUE(test::max_abs_diff(model.logits(ids), expected) <= 1e-5 * test::max_abs(expected.to_floats()));
      EXPECT_TRUE(test::max_abs_diff(model.nll(ids, ids), wide.nll(ids, ids)) <= 1e-4);
    }
    Context context(model), other(wide);
    const Tensor prompt = some_ids(9);
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(test::max_abs_diff(model.next_logits(prompt, context), wide.next_logits(prompt, other)) <= 1e-4);
    }
    GenerateOptions options;
    options.max_tokens = 12;
    options.temperature = 0;
    const std::vector<int32_t> start = prompt.to_ints();
    EXPECT_EQ(model.generate_ids(start, options), wide.generate_ids(start, options));
  }
}

TEST(LoadedWeights, InBf16PrecisionBfloat16WeightsAreNotCopied) {
  const test::TemporaryFolder folder;
  write_mpt(folder, DType::bfloat16);
  LanguageModel model = LanguageModel::load(folder.path());
  const Tensor ids = some_ids(30), expected = model.logits(ids);
  model.set_precision(Precision::bf16);
  for (const Parameter* parameter : model.parameters()) {
    EXPECT_EQ(parameter->operand().raw(), parameter->value.raw()) << parameter->name;
  }
  EXPECT_TRUE(test::max_abs_diff(model.logits(ids), expected) <= 0.05 * test::max_abs(expected.to_floats()));

  const test::TemporaryFolder half;
  write_mpt(half, DType::float16);
  LanguageModel other = LanguageModel::load(half.path());
  const Tensor wide = other.logits(ids);
  other.set_precision(Precision::bf16);  // products of bfloat16 activations and float16 weights
  EXPECT_TRUE(test::max_abs_diff(other.logits(ids), wide) <= 0.05 * test::max_abs(wide.to_floats()));
}

TEST(LoadedWeights, TrainingMakesFloat32CopiesAndLeavesTheFileAlone) {
  const test::TemporaryFolder folder;
  for (const auto& [dtype, precision] : {std::pair(DType::bfloat16, Precision::f32),
                                         {DType::bfloat16, Precision::bf16},
                                         {DType::float32, Precision::f32},
                                         {DType::float32, Precision::bf16}}) {
    write_mpt(folder, dtype);
    const std::string before = core::read_file(folder / "model.safetensors");
    LanguageModel model = LanguageModel::load(folder.path());
    model.set_precision(precision);
    const Tensor ids = some_ids(20), expected = model.logits(ids);
    model.zero_gradients();
    model.accumulate_gradients(ids, ids, 1, {});
    for (Parameter* parameter : model.parameters()) {
      EXPECT_EQ(parameter->value.dtype(), DType::float32) << parameter->name;
      EXPECT_EQ(parameter->gradient.shape(), parameter->value.shape());
      EXPECT_FALSE(is_mapped(parameter->value));
    }
    EXPECT_TRUE(test::max_abs_diff(model.logits(ids), expected) <= 1e-3 * test::max_abs(expected.to_floats()));
    for (Parameter* parameter : model.parameters()) parameter->value.fill(0);
    model.weights_changed();
    EXPECT_EQ(test::max_abs(model.logits(ids).to_floats()), 0);
    EXPECT_EQ(core::read_file(folder / "model.safetensors"), before);
  }
}

TEST(LoadedWeights, OpeningAFloat32ModelAllocatesItsVectorsAlone) {
  const test::TemporaryFolder folder;
  write_mpt(folder, DType::float32);
  const int64_t before = tensor_bytes();
  const LanguageModel model = LanguageModel::load(folder.path());
  EXPECT_LE(tensor_bytes() - before, model.weight_bytes() / 20);
}

TEST(LoadedWeights, AModelMayBeReplacedWhileItIsInUse) {
  const test::TemporaryFolder folder;
  write_mpt(folder, DType::bfloat16);
  const LanguageModel model = LanguageModel::load(folder.path());
  const Tensor ids = some_ids(7), expected = model.logits(ids);
  model.save(folder.path());  // writes new files beside those that are mapped
  EXPECT_TRUE(test::same_bits(model.logits(ids), expected));
  EXPECT_TRUE(test::same_bits(LanguageModel::load(folder.path()).logits(ids), expected));
}

TEST(LoadedWeights, ResultsHaveTheSameBitsAtAnyThreadCount) {
  const test::TemporaryFolder folder;
  write_mpt(folder, DType::float16);
  const LanguageModel model = LanguageModel::load(folder.path());
  test::expect_same_bits_at_any_thread_count([&] {
    return std::vector<Tensor>{model.logits(some_ids(300)), model.logits(some_ids(2))};
  });
}

TEST(LoadedWeights, AModelOf13GbIsNotReadWhenItIsOpened) {
  const test::TemporaryFolder folder;
  constexpr int64_t width = 4096;
  std::string header = "{";
  int64_t begin = 0;
  const auto add = [&](const std::string& name, int64_t rows, int64_t columns) {
    const int64_t end = begin + 2 * rows * std::max<int64_t>(columns, 1);
    header += fmt::format(R"({}"transformer.{}.weight":{{"dtype":"BF16","shape":[{}{}],"data_offsets":[{},{}]}})",
                          begin > 0 ? "," : "", name, rows, columns > 0 ? fmt::format(",{}", columns) : "", begin, end);
    begin = end;
  };
  add("wte", 50432, width);
  for (int layer = 0; layer < 32; ++layer) {
    const std::string at = fmt::format("blocks.{}.", layer);
    for (const char* norm : {"norm_1", "norm_2"}) add(at + norm, width, 0);
    add(at + "attn.Wqkv", 3 * width, width);
    add(at + "attn.out_proj", width, width);
    add(at + "ffn.up_proj", 4 * width, width);
    add(at + "ffn.down_proj", width, 4 * width);
  }
  add("norm_f", width, 0);
  header += "}";
  header.append((8 - header.size() % 8) % 8, ' ');  // as writers pad it, so that the numbers are aligned
  const std::string path = folder.write("model.safetensors", test::safetensors_file(header, 0));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + static_cast<uintmax_t>(begin));
  folder.write("config.json", R"({"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32,
                                  "vocab_size": 50432, "attn_config": {"alibi": true}})");
  const int64_t before = test::bytes_touched();
  const LanguageModel model = LanguageModel::load(folder.path());
  EXPECT_LT(test::bytes_touched(), before + (int64_t{100} << 20));
  EXPECT_GT(model.weight_bytes(), 13'000'000'000);
  EXPECT_LT(model.weight_bytes(), begin + 2'000'000);
}

class FixtureTypes : public testing::TestWithParam<const char*> {};

/// What a model's matrices take in memory is what they take in the file.
TEST_P(FixtureTypes, AreThoseOfTheFile) {
  const std::filesystem::path path = test::shared_data().parent_path() / "fixtures" / GetParam();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here";
  const ModelFiles files(path);
  int64_t expected = 0;
  for (const Source& source : files.sources) {
    for (const std::string& name : source.tensors) {
      const formats::TensorInfo& tensor = files.weights->info(name);
      const formats::WeightType& type = *formats::weight_type(tensor.dtype);
      const auto elements = static_cast<int64_t>(tensor.end - tensor.begin) / type.block_bytes * type.block_elements;
      const bool is_kept = tensor.shape.size() == 2 && source.arrangement != Arrangement::unit_rows;
      const DType kept = is_kept ? type.dtype : DType::float32;
      expected += elements / numbers_in(kept) * static_cast<int64_t>(size_of(kept));
    }
  }
  EXPECT_EQ(LanguageModel::load(path).weight_bytes(), expected);
}

INSTANTIATE_TEST_SUITE_P(All, FixtureTypes,
                         testing::Values("models/mpt", "models/mpt-bias", "models/mpt-qkln", "models/bloom",
                                         "models/falcon-rw", "models/baichuan", "models/jais", "models/refact",
                                         "models/replit", "gguf/mpt-f16.gguf", "gguf/mpt-bf16.gguf",
                                         "gguf/mpt-q8_0.gguf", "gguf/mpt-q4_k_q6_k.gguf", "gguf/bloom-f16.gguf",
                                         "gguf/refact-q8_0.gguf"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           for (char& c : name) c = c == '-' || c == '/' || c == '.' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace alibi::model
