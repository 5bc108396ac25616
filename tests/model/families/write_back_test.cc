// Models of other programs that are written back as their families have them.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "alibi/language_model.h"
#include "alibi/warning.h"
#include "core/files.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

namespace fs = std::filesystem;

fs::path fixture(const std::string& name) { return test::shared_data().parent_path() / "fixtures" / "models" / name; }

bool same_tensor(const formats::Safetensors& a, const formats::Safetensors& b, const std::string& name) {
  const std::span<const std::byte> x = a.bytes(name), y = b.bytes(name);
  return a.info(name).dtype == b.info(name).dtype && a.info(name).shape == b.info(name).shape && x.size() == y.size() &&
         std::memcmp(x.data(), y.data(), x.size()) == 0;
}

/// One step down the gradient of a few tokens.
void train_a_little(LanguageModel& model) {
  const Tensor ids = test::random_ids({1, 9}, 1, model.config().vocab_size);
  model.zero_gradients();
  model.accumulate_gradients(ids, ids, 1, {});
  for (Parameter* parameter : model.parameters()) {
    float* value = parameter->value.data<float>();
    const float* gradient = parameter->gradient.data<float>();
    for (int64_t i = 0; i < parameter->value.elements(); ++i) value[i] -= 1e-3f * gradient[i];
  }
  model.weights_changed();
}

class WrittenBack : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!fs::exists(fixture(GetParam()))) GTEST_SKIP() << fixture(GetParam()) << " is not here";
  }
};

TEST_P(WrittenBack, TensorsAreThoseOfTheSource) {
  const fs::path folder = fixture(GetParam());
  const test::TemporaryFolder copy, saved;
  for (const auto& file : fs::directory_iterator(folder)) fs::copy_file(file, copy / file.path().filename());
  copy.write("tokenizer_config.json", R"({"tokenizer_class": "Kept"})");
  copy.write("special_tokens_map.json", "{}");
  LanguageModel::load(copy.path()).save(saved.path());
  const formats::Safetensors before(folder), after(saved.path());
  ASSERT_EQ(after.tensors().size(), before.tensors().size());
  for (const formats::TensorInfo& tensor : before.tensors()) {
    EXPECT_TRUE(same_tensor(before, after, tensor.name)) << tensor.name;
  }
  EXPECT_EQ(formats::read_json_object(saved / "config.json").raw(),
            formats::read_json_object(folder / "config.json").raw());
  EXPECT_EQ(core::read_file(saved / "tokenizer_config.json"), R"({"tokenizer_class": "Kept"})");
  EXPECT_TRUE(fs::exists(saved / "special_tokens_map.json"));
}

TEST_P(WrittenBack, ATrainedModelIsTheSameWhenItIsLoaded) {
  LanguageModel model = LanguageModel::load(fixture(GetParam()), [](LanguageModelConfig& config) {
    config.transformer.block.dropout = 0.25f;
    config.train_length = 7;
  });
  if (model.config().transformer.head.normalized) GTEST_SKIP() << "a normalized head cannot be trained";
  const Tensor ids = test::random_ids({1, 12}, 2, model.config().vocab_size);
  const Tensor before = model.logits(ids);
  train_a_little(model);
  const Tensor expected = model.logits(ids);
  EXPECT_FALSE(test::same_bits(expected, before));
  const test::TemporaryFolder saved;
  model.save(saved.path());
  const LanguageModel read = LanguageModel::load(saved.path());
  EXPECT_TRUE(test::same_bits(read.logits(ids), expected));
  EXPECT_EQ(read.config().train_length, 7);
  EXPECT_EQ(read.config().transformer.block.dropout, 0.25f);
  const formats::JsonObject config = formats::read_json_object(saved / "config.json");
  EXPECT_EQ(config.get<std::string>("model_type"),
            formats::read_json_object(fixture(GetParam()) / "config.json").get<std::string>("model_type"));
  const formats::Safetensors weights(saved.path()), source(fixture(GetParam()));
  for (const formats::TensorInfo& tensor : source.tensors()) {
    EXPECT_EQ(weights.info(tensor.name).shape, tensor.shape) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, WrittenBack,
                         testing::Values("mpt", "mpt-bias", "mpt-clip", "mpt-gqa", "mpt-max16", "mpt-mqa", "mpt-qkln",
                                         "mpt-untied", "bloom", "bloom-residual", "falcon-rw", "falcon-rw-old",
                                         "baichuan", "baichuan2", "btlm", "btlm-scaled", "btlm-dynamic", "jais",
                                         "refact", "replit", "replit-renamed"),
                         test::underscored);

/// A copy with a head of its own, and what its configuration says of that.
void write_with_head(const fs::path& from, const test::TemporaryFolder& to, const std::string& embedding, bool tied) {
  formats::OrderedJson json = formats::OrderedJson::parse(core::read_file(from / "config.json"));
  json["tie_word_embeddings"] = tied;
  formats::write_json(to / "config.json", json);
  const formats::Safetensors weights(from);
  std::vector<formats::NamedTensor> tensors;
  for (const formats::TensorInfo& tensor : weights.tensors()) {
    if (tensor.name == "lm_head.weight") continue;
    Tensor values = Tensor::empty(tensor.shape);
    weights.load_into(tensor.name, values);
    tensors.push_back({tensor.name, values});
    if (tensor.name.ends_with(embedding)) tensors.push_back({"lm_head.weight", test::random_tensor(tensor.shape, 9)});
  }
  formats::write_safetensors(to / "model.safetensors", tensors);
}

/// As transformers 5.24 does: it keeps both, and warns.
TEST(WriteBack, ATrainedHeadBesideATiedEmbeddingIsKeptWithAWarning) {
  if (!fs::exists(fixture("mpt"))) GTEST_SKIP() << "the fixtures are not here";
  std::vector<std::string> warnings;
  set_warning_handler([&](std::string_view warning) { warnings.emplace_back(warning); });
  for (const auto& [name, embedding] : {std::pair("mpt", "wte.weight"),
                                        {"bloom", "word_embeddings.weight"},
                                        {"falcon-rw", "word_embeddings.weight"},
                                        {"replit", "wte.weight"},
                                        {"btlm", "wte.weight"},
                                        {"jais", "wte.weight"}}) {
    SCOPED_TRACE(name);
    const test::TemporaryFolder tied, untied, saved;
    write_with_head(fixture(name), tied, embedding, true);
    write_with_head(fixture(name), untied, embedding, false);
    const LanguageModel expected = LanguageModel::load(untied.path());
    EXPECT_EQ(warnings.size(), 0);
    LanguageModel model = LanguageModel::load(tied.path());
    ASSERT_EQ(warnings.size(), 1);
    EXPECT_NE(warnings.front().find("lm_head.weight differs from"), std::string::npos) << warnings.front();
    EXPECT_FALSE(model.config().transformer.head.tied);
    const Tensor ids = test::random_ids({1, 9}, 1, model.config().vocab_size);
    EXPECT_TRUE(test::same_bits(model.logits(ids), expected.logits(ids)));
    train_a_little(model);
    model.save(saved.path());
    EXPECT_TRUE(test::same_bits(LanguageModel::load(saved.path()).logits(ids), model.logits(ids)));
    warnings.clear();
  }
  LanguageModel::load(fixture("jais"));  // repeats the embedding
  EXPECT_EQ(warnings.size(), 0);
  set_warning_handler({});
}

TEST(WriteBack, AnOwnFolderWithAHeadThatDiffersIsRefused) {
  const test::TemporaryFolder folder;
  LanguageModel(preset("tiny"), 1).save(folder.path());
  const formats::Safetensors weights(folder.path());
  std::vector<formats::NamedTensor> tensors;
  for (const formats::TensorInfo& tensor : weights.tensors())
    tensors.push_back({tensor.name, weights.load(tensor.name)});
  tensors.push_back({"lm_head.weight", weights.load("transformer.wte.weight").clone()});
  formats::write_safetensors(folder / "model.safetensors", tensors);
  LanguageModel::load(folder.path());
  tensors.back().tensor.data<float>()[3] += 1;
  formats::write_safetensors(folder / "model.safetensors", tensors);
  test::expect_error([&] { LanguageModel::load(folder.path()); }, "lm_head.weight differs from transformer.wte.weight");
}

TEST(WriteBack, ATiedHeadThatTheFileRepeatsFollowsTheEmbedding) {
  if (!fs::exists(fixture("jais"))) GTEST_SKIP() << "the fixtures are not here";
  LanguageModel model = LanguageModel::load(fixture("jais"));
  train_a_little(model);
  const test::TemporaryFolder saved;
  model.save(saved.path());
  const formats::Safetensors weights(saved.path());
  EXPECT_TRUE(test::same_bits(weights.load("lm_head.weight"), weights.load("transformer.wte.weight")));
  EXPECT_FALSE(same_tensor(weights, formats::Safetensors(fixture("jais")), "lm_head.weight"));
}

TEST(WriteBack, ChangesThatAreNoneOfAModelAreRefused) {
  if (!fs::exists(fixture("mpt"))) GTEST_SKIP() << "the fixtures are not here";
  const test::TemporaryFolder saved;
  LanguageModel::load(fixture("mpt")).save(saved.path());
  const auto with = [&](const char* changes) {
    formats::OrderedJson json = formats::OrderedJson::parse(core::read_file(saved / "config.json"));
    json["alibi_attention"] = formats::OrderedJson::parse(changes);
    formats::write_json(saved / "config.json", json);
    return test::message_of([&] { LanguageModel::load(saved.path()); });
  };
  EXPECT_NE(with(R"({"frob": 1})").find("frob is no field"), std::string::npos);
  EXPECT_NE(with(R"({"dropout": 2})").find("dropout"), std::string::npos);
  EXPECT_NE(with(R"({"dropout": "a"})").find("dropout"), std::string::npos);
  EXPECT_NE(with(R"({"d_model": 7})").find("config.json: alibi_attention.d_model is 7"), std::string::npos);
  EXPECT_NE(with(R"({"layers": 1})").find("has no place in the model"), std::string::npos);
}

}  // namespace
}  // namespace alibi::model
