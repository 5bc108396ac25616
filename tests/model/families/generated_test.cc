// Small folders of several families, made here: where each number of a file comes to lie.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "alibi/language_model.h"
#include "formats/gguf_samples.h"
#include "formats/safetensors.h"
#include "model/families/model_files.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

using test::expect_error;
using test::random_tensor;

constexpr int64_t kWidth = 6, kHeads = 2, kWords = 11;

/// Random tensors of given shapes, in a folder with a config.json.
struct Generated {
  test::TemporaryFolder folder;
  std::vector<formats::NamedTensor> tensors;

  Generated& add(const std::string& name, const Shape& shape) {
    tensors.push_back({name, random_tensor(shape, tensors.size() + 1)});
    return *this;
  }
  void write(const std::string& config) const {
    folder.write("config.json", config);
    formats::write_safetensors(folder / "model.safetensors", tensors);
  }
  std::vector<float> values(const std::string& name) const {
    for (const formats::NamedTensor& tensor : tensors) {
      if (tensor.name == name) return tensor.tensor.to_floats();
    }
    return {};
  }
};

std::vector<float> parameter_of(LanguageModel& model, const std::string& name) {
  for (const Parameter* parameter : model.parameters()) {
    if (parameter->name == name) return parameter->value.to_floats();
  }
  ADD_FAILURE() << "no parameter " << name;
  return {};
}

constexpr const char* kBloomConfig =
    R"({"model_type": "bloom", "n_layer": 1, "hidden_size": 6, "n_head": 2, "vocab_size": 11})";

void add_bloom(Generated& made) {
  made.add("word_embeddings.weight", {kWords, kWidth});
  for (const char* norm :
       {"word_embeddings_layernorm", "h.0.input_layernorm", "h.0.post_attention_layernorm", "ln_f"}) {
    made.add(norm + std::string(".weight"), {kWidth}).add(norm + std::string(".bias"), {kWidth});
  }
  const std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>> layers = {
      {"h.0.self_attention.query_key_value", {3 * kWidth, kWidth}},
      {"h.0.self_attention.dense", {kWidth, kWidth}},
      {"h.0.mlp.dense_h_to_4h", {4 * kWidth, kWidth}},
      {"h.0.mlp.dense_4h_to_h", {kWidth, 4 * kWidth}}};
  for (const auto& [name, shape] : layers) {
    made.add(name + ".weight", {shape.first, shape.second}).add(name + ".bias", {shape.first});
  }
}

TEST(GeneratedFamily, BloomsInterleavedHeadsAreSetApart) {
  Generated made;
  add_bloom(made);
  made.write(kBloomConfig);
  LanguageModel model = LanguageModel::load(made.folder.path());
  EXPECT_FALSE(model.has_tokenizer());
  constexpr int64_t dim = kWidth / kHeads;
  for (const auto& [ending, columns] : {std::pair(".weight", kWidth), {".bias", int64_t{1}}}) {
    const std::vector<float> theirs = made.values("h.0.self_attention.query_key_value" + std::string(ending));
    const std::vector<float> ours = parameter_of(model, "blocks.0.attn.Wqkv" + std::string(ending));
    ASSERT_EQ(ours.size(), theirs.size());
    for (int64_t row = 0; row < 3 * kWidth; ++row) {
      const int64_t part = row / kWidth, head = row % kWidth / dim, i = row % dim;
      for (int64_t column = 0; column < columns; ++column) {
        EXPECT_EQ(ours[static_cast<size_t>(row * columns + column)],
                  theirs[static_cast<size_t>(((head * 3 + part) * dim + i) * columns + column)]);
      }
    }
  }
  EXPECT_EQ(ModelFiles(made.folder.path()).family, "bloom");
}

TEST(GeneratedFamily, WhatIsMissingOrTooMuchIsNamed) {
  for (const char* missing : {"ln_f.bias", "h.0.mlp.dense_h_to_4h.weight", "word_embeddings.weight"}) {
    Generated made;
    add_bloom(made);
    std::erase_if(made.tensors, [&](const auto& tensor) { return tensor.name == missing; });
    made.write(kBloomConfig);
    expect_error([&] { LanguageModel::load(made.folder.path()); }, missing);
  }
  Generated made;
  add_bloom(made);
  made.add("h.1.mlp.dense_h_to_4h.weight", {24, 6});
  made.write(kBloomConfig);
  expect_error([&] { LanguageModel::load(made.folder.path()); }, "h.1.mlp.dense_h_to_4h.weight");
}

TEST(GeneratedFamily, NumbersThatAreNotFiniteAreNamed) {
  Generated made;
  add_bloom(made);
  made.tensors[3].tensor.data<float>()[2] = std::numeric_limits<float>::infinity();
  made.write(kBloomConfig);
  expect_error([&] { LanguageModel::load(made.folder.path()); }, made.tensors[3].name.c_str());
}

constexpr const char* kJaisConfig =
    R"({"model_type": "jais", "n_layer": 1, "n_embd": 6, "n_head": 2, "n_inner": 5, "vocab_size": 11,
        "position_embedding_type": "alibi", "activation_function": "swiglu", "width_scale": 0.5, "embeddings_scale": 3)";

void add_jais(Generated& made) {
  made.add("transformer.wte.weight", {kWords, kWidth}).add("transformer.relative_pe.slopes", {kHeads, 1});
  for (const char* norm : {"ln_f", "h.0.ln_1", "h.0.ln_2"}) {
    for (const char* ending : {".weight", ".bias"}) made.add(std::string("transformer.") + norm + ending, {kWidth});
  }
  const std::vector<std::pair<std::string, std::pair<int64_t, int64_t>>> layers = {
      {"attn.c_attn", {kWidth, 3 * kWidth}},
      {"attn.c_proj", {kWidth, kWidth}},
      {"mlp.c_fc", {kWidth, 5}},
      {"mlp.c_fc2", {kWidth, 5}},
      {"mlp.c_proj", {5, kWidth}}};
  for (const auto& [name, shape] : layers) {
    const std::string full = "transformer.h.0." + name;
    made.add(full + ".weight", {shape.first, shape.second}).add(full + ".bias", {shape.second});
  }
  Tensor& slopes = made.tensors[1].tensor;
  for (int64_t i = 0; i < kHeads; ++i) slopes.data<float>()[i] = 0.25f / static_cast<float>(i + 1);
}

TEST(GeneratedFamily, JaisIsTransposedWithItsGateFirst) {
  Generated made;
  add_jais(made);
  made.write(kJaisConfig + std::string("}"));
  LanguageModel model = LanguageModel::load(made.folder.path());
  const std::vector<float> gate = made.values("transformer.h.0.mlp.c_fc2.weight");
  const std::vector<float> up = made.values("transformer.h.0.mlp.c_fc.weight");
  const std::vector<float> ours = parameter_of(model, "blocks.0.ffn.up_proj.weight");
  for (size_t row = 0; row < 5; ++row) {
    for (size_t column = 0; column < 6; ++column) {
      EXPECT_EQ(ours[row * 6 + column], gate[column * 5 + row]);
      EXPECT_EQ(ours[(5 + row) * 6 + column], up[column * 5 + row]);
    }
  }
  const HeadConfig& head = model.config().transformer.head;
  EXPECT_EQ(head.logit_scale, 0.5);
  EXPECT_EQ(model.config().transformer.embedding.scale, 3);
  EXPECT_EQ(model.slopes().front(), (std::vector<float>{0.25f, 0.125f}));
}

TEST(GeneratedFamily, JaisInterpolatesAsItsConfigurationSays) {
  const auto load = [](const char* scaling) {
    Generated made;
    add_jais(made);
    made.write(kJaisConfig + std::string(R"(, "alibi_scaling": )") + scaling + "}");
    return LanguageModel::load(made.folder.path());
  };
  EXPECT_EQ(load(R"({"type": "linear", "factor": 2.0})").slopes().front(), (std::vector<float>{0.125f, 0.0625f}));
  const LanguageModel dynamic = load(R"({"type": "linear", "train_seq_len": 9})");
  EXPECT_TRUE(dynamic.interpolation().dynamic);
  EXPECT_EQ(dynamic.config().train_length, 9);
  expect_error([&] { load(R"({"type": "yarn", "factor": 2.0})"); }, "yarn");
  expect_error([&] { load(R"({"type": "linear", "factor": 0.0})"); }, "factor");
  // As the authors' JAISConfig does.
  for (const char* scaling : {"{}", R"({"type": "linear"})", R"({"factor": 2.0})", "false", "2",
                              R"({"type": "linear", "factor": 2.0, "train_seq_len": 9})",
                              R"({"type": "linear", "factor": 2.0, "frob": 9})"}) {
    expect_error([&] { load(scaling); }, "alibi_scaling");
  }
  EXPECT_EQ(load("null").slopes().front(), (std::vector<float>{0.25f, 0.125f}));
}

/// The authors' code divides by head_dim or its root only if scale_attn_weights is true.
TEST(GeneratedFamily, JaisScalesItsScoresAsItsConfigurationSays) {
  const auto scale = [](const char* keys) {
    Generated made;
    add_jais(made);
    made.write(kJaisConfig + std::string(keys) + "}");
    return LanguageModel::load(made.folder.path()).config().transformer.attention.softmax_scale;
  };
  EXPECT_EQ(scale(""), 0);  // the usual 1 / sqrt(head_dim)
  EXPECT_EQ(scale(R"(, "mup_scale_qk_dot_by_d": true)"), 1.0 / (kWidth / kHeads));
  EXPECT_EQ(scale(R"(, "scale_attn_weights": false)"), 1);
  EXPECT_EQ(scale(R"(, "scale_attn_weights": false, "mup_scale_qk_dot_by_d": true)"), 1);
  expect_error([&] { scale(R"(, "layer_norm_epsilon": false)"); }, "layer_norm_epsilon is false");
}

TEST(GeneratedFamily, OlderRefactFilesHaveTheirPartsApart) {
  constexpr int64_t hidden = 256;
  Generated made;
  made.add("transformer.wte.weight", {kWords, kWidth}).add("lm_head.weight", {kWords, kWidth});
  for (const char* norm : {"ln_f", "transformer.h.0.ln_1", "transformer.h.0.ln_2"}) {
    made.add(norm + std::string(".weight"), {kWidth});
  }
  made.add("transformer.h.0.attn.q.weight", {6, 6}).add("transformer.h.0.attn.k.weight", {3, 6});
  made.add("transformer.h.0.attn.v.weight", {3, 6}).add("transformer.h.0.attn.c_proj.weight", {6, 6});
  made.add("transformer.h.0.mlp.linear_1.weight", {hidden, 6}).add("transformer.h.0.mlp.linear_3.weight", {hidden, 6});
  made.add("transformer.h.0.mlp.c_proj.weight", {6, hidden});
  made.write(R"({"model_type": "gpt_refact", "n_layer": 1, "n_embd": 6, "n_head": 2, "vocab_size": 11})");
  LanguageModel model = LanguageModel::load(made.folder.path());
  std::vector<float> expected;
  for (const char* part : {"q", "k", "v"}) {
    const std::vector<float> values = made.values(fmt::format("transformer.h.0.attn.{}.weight", part));
    expected.insert(expected.end(), values.begin(), values.end());
  }
  EXPECT_EQ(parameter_of(model, "blocks.0.attn.Wqkv.weight"), expected);
  EXPECT_NE(parameter_of(model, "lm_head.weight"), parameter_of(model, "wte.weight"));
}

TEST(GeneratedFamily, OtherFoldersAreRefusedByName) {
  Generated made;
  add_bloom(made);
  made.write(R"({"model_type": "frobnicator"})");
  expect_error([&] { LanguageModel::load(made.folder.path()); }, "model_type is 'frobnicator', expected one of mpt");
  made.write(R"({"model_type": "bloom", "quantization_config": {"bits": 4}})");
  expect_error([&] { LanguageModel::load(made.folder.path()); }, "quantization_config");
  made.write(R"({"model_type": "bloom", "n_layer": 1, "hidden_size": 6, "n_head": 2.5, "vocab_size": 11})");
  expect_error([&] { LanguageModel::load(made.folder.path()); }, "n_head is 2.5");
  made.write(R"({"model_type": "bloom", "n_layer": 1, "hidden_size": 6, "num_attention_heads": 4, "vocab_size": 11})");
  expect_error([&] { LanguageModel::load(made.folder.path()); }, "num_attention_heads");
}

TEST(GeneratedFamily, AGgufFileOfAnMpt) {
  const Tensor table = random_tensor({kWords, 8}, 1);
  const auto bytes = [](const Tensor& tensor) {
    return std::string(static_cast<const char*>(tensor.raw()), tensor.bytes());
  };
  test::GgufWriter file;
  file.string("general.architecture", "mpt").integer("mpt.block_count", 1).integer("mpt.embedding_length", 8);
  file.integer("mpt.attention.head_count", 2).integer("mpt.feed_forward_length", 32).integer("mpt.context_length", 9);
  file.number("mpt.attention.layer_norm_epsilon", 1e-5f).number("mpt.attention.max_alibi_bias", 8);
  file.tensor("token_embd.weight", {11, 8}, 0, bytes(table));
  const std::vector<std::pair<std::string, std::vector<uint64_t>>> rest = {
      {"output_norm", {8}},    {"blk.0.attn_norm", {8}},  {"blk.0.attn_qkv", {24, 8}}, {"blk.0.attn_output", {8, 8}},
      {"blk.0.ffn_norm", {8}}, {"blk.0.ffn_up", {32, 8}}, {"blk.0.ffn_down", {8, 32}}};
  for (const auto& [name, shape] : rest) {
    file.tensor(name + ".weight", shape, 0, bytes(random_tensor({shape.begin(), shape.end()}, 2)));
  }
  const test::TemporaryFolder folder;
  const std::string path = folder.write("m.gguf", file.file());
  LanguageModel model = LanguageModel::load(path);
  EXPECT_EQ(parameter_of(model, "wte.weight"), table.to_floats());
  EXPECT_EQ(model.config().train_length, 9);
  EXPECT_EQ(ModelFiles(path).family, "mpt");
  EXPECT_TRUE(ModelFiles(path).notes.empty());
}

}  // namespace
}  // namespace alibi::model
