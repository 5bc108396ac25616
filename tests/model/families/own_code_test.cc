// Logits, of encoders the states, of the families' own code: flash-linear-attention's and transformers'.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "alibi/context.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "model/families/convert.h"
#include "model/families/family.h"
#include "model/families/model_files.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

/// tests/transformers/compare.py has the same function.
float formula_value(uint32_t number, uint32_t i) {
  uint32_t bits = i * 0x9e3779b9u + number * 0x85ebca6bu + 1;
  bits = (bits ^ bits >> 15) * 0x2c1b3c6du;
  bits = (bits ^ bits >> 12) * 0x297a2d39u;
  return static_cast<float>(bits >> 8) / 0x1p23f - 1;
}

/// The tensors of a case: their names and shapes, in their order.
void write_tensors(const formats::Json& names_and_shapes, const std::filesystem::path& file) {
  std::vector<formats::NamedTensor> tensors;
  for (const formats::Json& one : names_and_shapes) {
    Tensor tensor(one.at(1).get<Shape>());
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      const float value = formula_value(static_cast<uint32_t>(tensors.size()), static_cast<uint32_t>(i));
      tensor.data<float>()[i] = tensor.axes() == 1 ? 1 + value / 2 : value;
    }
    tensors.push_back({one.at(0).get<std::string>(), tensor});
  }
  formats::write_safetensors(file, tensors);
}

formats::JsonObject cases_of(const std::string& family) {
  return formats::read_json_object(test::test_sources() / ("model/families/" + family + ".json"));
}

/// With another value of one key, the model of a case is refused.
void expect_refused(const formats::Json& sample, const char* key, const formats::Json& value, const char* named) {
  formats::Json config = sample.at("config");
  config[key] = value;
  const test::TemporaryFolder folder;
  folder.write("config.json", config.dump());
  write_tensors(sample.at("tensors"), folder / "model.safetensors");
  test::expect_error([&] { LanguageModel::load(folder.path()); }, named);
}

class OwnCode : public testing::TestWithParam<const char*> {};

TEST_P(OwnCode, HasTheseOutputs) {
  const formats::JsonObject all = cases_of(GetParam());
  for (const formats::Json& one : all.raw().at("cases")) {
    const test::TemporaryFolder folder;
    folder.write("config.json", one.at("config").dump());
    write_tensors(one.at("tensors"), folder / "model.safetensors");
    const LanguageModel model = LanguageModel::load(folder.path());
    const ModelFiles files(folder.path());
    EXPECT_EQ(files.family, GetParam() == std::string("forgetting") ? "forgetting_transformer" : GetParam());
    EXPECT_TRUE(files.slopes().empty());
    const auto ids = one.at("ids").get<std::vector<int32_t>>();
    const bool is_decoder = one.contains("logits");
    const auto expected = one.at(is_decoder ? "logits" : "states").get<std::vector<double>>();
    const auto length = static_cast<int64_t>(ids.size());
    const Tensor all_ids = Tensor::from(ids, {1, length});
    const Tensor whole = is_decoder ? model.logits(all_ids) : model.hidden(all_ids);
    EXPECT_LE(test::relative_diff(test::doubles(whole), expected), 1e-5);
    if (!is_decoder) continue;
    // Token by token.
    Context context(model);
    for (int64_t i = 0; i < length; ++i) {
      const Tensor next =
          model.next_logits(Tensor::from(std::span(ids).subspan(static_cast<size_t>(i), 1), {1, 1}), context);
      EXPECT_LE(test::relative_diff(test::doubles(next), test::doubles(whole.slice(1, i, i + 1))), 1e-5) << i;
    }
    const bool is_written = family_of_folder(formats::JsonObject(one.at("config"), "")).folder.describe != nullptr;
    if (!is_written) continue;
    // Written from our own layout, the same tensors have the same bytes.
    const test::TemporaryFolder written;
    write_for_transformers(model, written.path());
    const formats::Safetensors before(folder.path()), after(written.path());
    ASSERT_EQ(before.tensors().size(), after.tensors().size());
    for (const formats::TensorInfo& tensor : before.tensors()) {
      EXPECT_TRUE(test::same_bits(before.load(tensor.name), after.load(tensor.name))) << tensor.name;
    }
  }
}

TEST(Jais2, WhatItDoesNotHaveIsRefusedByName) {
  const formats::JsonObject all = cases_of("jais2");
  const formats::Json& sample = all.raw().at("cases").at(0);
  expect_refused(sample, "hidden_act", "silu", "hidden_act is");
  expect_refused(sample, "rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}, "rope_scaling is");
  expect_refused(sample, "rope_parameters", {{"rope_type", "llama3"}, {"rope_theta", 1e4}}, "rope_type is");
  expect_refused(sample, "mlp_bias", false, "mlp_bias is");
  expect_refused(sample, "head_dim", 4, "head_dim is");
}

TEST(Gte, WhatItDoesNotHaveIsRefusedByName) {
  const formats::JsonObject all = cases_of("gte");
  const formats::Json& sample = all.raw().at("cases").back();
  expect_refused(sample, "hidden_act", "relu", "hidden_act is");
  expect_refused(sample, "position_embedding_type", "absolute", "position_embedding_type is");
  expect_refused(sample, "layer_norm_type", "rms_norm", "layer_norm_type is");
  expect_refused(sample, "logn_attention_scale", true, "logn_attention_scale is");
  expect_refused(sample, "rope_scaling", {{"type", "dynamic"}, {"factor", 2}}, "type is");
  expect_refused(sample, "rope_scaling", {{"type", "ntk"}, {"factor", 2}, {"mixed_b", 0.5}}, "mixed_b is");
  expect_refused(sample, "rope_scaling", {{"type", "ntk"}, {"factor", 0}}, "factor is");
}

INSTANTIATE_TEST_SUITE_P(Families, OwnCode, testing::Values("forgetting", "jais2", "gte"));

}  // namespace
}  // namespace alibi::model
