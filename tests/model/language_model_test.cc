#include "alibi/language_model.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "alibi/error.h"
#include "alibi/evaluate.h"
#include "alibi/runtime.h"
#include "core/files.h"
#include "positions.h"
#include "small_config.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

using test::expect_error;
using test::random_ids;
using test::TemporaryFolder;

LanguageModelConfig language_model_config(Position position = Position::alibi) {
  return with_position(test::small_config(), position, 16);
}

TEST(LanguageModel, LossIsMinusTheLogOfTheSoftmaxOfTheLogits) {
  const LanguageModel model(language_model_config(), 1);
  const Tensor ids = random_ids({2, 9}, 1, 257), targets = random_ids({2, 9}, 2, 257);
  const std::vector<float> logits = model.logits(ids).to_floats();
  const std::vector<float> nll = model.nll(ids, targets);
  for (size_t row = 0; row < 18; ++row) {
    double sum = 0;
    for (size_t v = 0; v < 257; ++v) sum += std::exp(static_cast<double>(logits[row * 257 + v]));
    const auto target = static_cast<size_t>(targets.to_ints()[row]);
    EXPECT_NEAR(nll[row], std::log(sum) - static_cast<double>(logits[row * 257 + target]), 1e-4);
  }
}

TEST(LanguageModel, ConvertedWeightsAreRoundedOnce) {
  const LanguageModel original(language_model_config(), 1);
  const Tensor ids = random_ids({2, 9}, 1, 257);
  const std::vector<float> exact = original.logits(ids).to_floats();
  for (const auto& [type, tolerance] : {std::pair(DType::bfloat16, 0.1), {DType::q8_0, 0.1}}) {
    LanguageModel model(language_model_config(), 1), widened(language_model_config(), 1);
    for (LanguageModel* const one : {&model, &widened}) one->convert_weights(type);
    EXPECT_LT(model.weight_bytes(), original.weight_bytes() * (type == DType::q8_0 ? 4 : 6) / 10);
    widened.convert_weights(DType::float32);
    const std::vector<float> converted = model.logits(ids).to_floats(), rounded = widened.logits(ids).to_floats();
    double changed = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      EXPECT_NEAR(converted[i], rounded[i], 1e-4) << name_of(type);
      changed = std::max(changed, std::abs(static_cast<double>(converted[i]) - exact[i]));
    }
    EXPECT_TRUE(changed > 0 && changed < tolerance) << changed << ' ' << name_of(type);
    model.zero_gradients();  // training needs float32, and makes it
    EXPECT_EQ(model.weight_bytes(), original.weight_bytes());
    LanguageModel rounding(language_model_config(), 1);
    rounding.set_precision(Precision::bf16);
    rounding.convert_weights(type);
    rounding.zero_gradients();
    EXPECT_GT(rounding.accumulate_gradients(ids, ids, 1, {}), 0) << name_of(type);
  }
  LanguageModel model(language_model_config(), 1);
  expect_error<UsageError>([&] { model.convert_weights(DType::int32); },
                           "choose float32, bfloat16, q8_0, q4_0 or q4_k");
}

TEST(LanguageModel, QuantizedActivationsAreNearAndDoNotDependOnTheBatch) {
  const Tensor ids = random_ids({3, 40}, 1, 257);
  for (const DType type : {DType::q8_0, DType::q4_0}) {
    LanguageModel model(language_model_config(), 1);
    model.convert_weights(type);
    const std::vector<float> exact = model.logits(ids).to_floats();
    model.set_quantized_activations(true);
    const Tensor quantized = model.logits(ids);
    const double changed = test::relative_diff(test::doubles(quantized), {exact.begin(), exact.end()});
    EXPECT_TRUE(changed > 0 && changed < 0.03) << changed << ' ' << name_of(type);
    EXPECT_TRUE(test::same_bits(model.logits(ids.slice(0, 1, 2).clone()), quantized.slice(0, 1, 2).clone()));
    EXPECT_TRUE(model.sharing_weights([](LanguageModelConfig&) {}).quantized_activations());
    model.set_quantized_activations(false);
    EXPECT_EQ(model.logits(ids).to_floats(), exact);
  }
}

TEST(LanguageModel, ConvertedWeightsDoNotChangeTheFormerOnes) {
  LanguageModel model(language_model_config(), 1);
  model.set_precision(Precision::bf16);
  model.convert_weights(DType::bfloat16);
  // Other models may share these tensors, and a file that is mapped for reading may hold them.
  std::vector<Tensor> former;
  std::vector<std::vector<float>> before;
  for (const Parameter* parameter : model.parameters()) {
    former.push_back(parameter->value);
    before.push_back(parameter->value.to_floats());
  }
  model.convert_weights(DType::float32);
  for (Parameter* const parameter : model.parameters()) {
    const std::vector<float> ones(static_cast<size_t>(parameter->value.elements()), 1.0f);
    parameter->value = Tensor::from(ones, parameter->value.shape());
  }
  model.weights_changed();
  for (size_t i = 0; i < former.size(); ++i) EXPECT_EQ(former[i].to_floats(), before[i]) << i;
}

TEST(LanguageModel, GradientsAreThoseOfTheLoss) {
  for (const Position position : {Position::alibi, Position::sinusoidal, Position::learned}) {
    LanguageModel model(language_model_config(position), 1);
    const Tensor ids = random_ids({2, 9}, 1, 257);
    Tensor targets = random_ids({2, 9}, 2, 257);
    targets.data<int32_t>()[3] = -1;
    const StepSeed seed{};
    const float scale = 0.25f;
    model.zero_gradients();
    model.accumulate_gradients(ids, targets, scale, seed);
    const auto loss = [&] {
      double sum = 0;
      for (const float value : model.nll(ids, targets)) sum += static_cast<double>(value);
      return static_cast<double>(scale) * sum;
    };
    const std::vector<Parameter*> parameters = model.parameters();
    for (size_t p = 0; p < parameters.size(); ++p) {
      Tensor& value = parameters[p]->value;
      const Tensor original = value.clone(), direction = test::random_tensor(value.shape(), p);
      const float step = 2e-3f;
      const auto move = [&](float by) {
        for (int64_t j = 0; j < value.elements(); ++j) {
          value.data<float>()[j] = original.data<float>()[j] + by * direction.data<float>()[j];
        }
      };
      move(step);
      const double above = loss();
      move(-step);
      const double below = loss();
      move(0);
      const std::vector<double> gradient = test::doubles(parameters[p]->gradient);
      const double expected = test::dot(gradient, test::doubles(direction));
      const double found = (above - below) / (2 * static_cast<double>(step));
      EXPECT_TRUE(std::abs(found - expected) <= 2e-2 * std::sqrt(test::dot(gradient, gradient)) + 5e-3)
          << parameters[p]->name << ": " << found << " " << expected;
    }
  }
}

TEST(LanguageModel, PrecisionMayBeSwitchedBetweenSteps) {
  const Tensor ids = random_ids({2, 9}, 1, 257), targets = random_ids({2, 9}, 2, 257);
  const auto gradients = [&](LanguageModel& model, Precision precision) {
    model.set_precision(precision);
    model.zero_gradients();
    model.accumulate_gradients(ids, targets, 1, {});
    std::vector<Tensor> all;
    for (const Parameter* parameter : model.parameters()) all.push_back(parameter->gradient.clone());
    return all;
  };
  LanguageModel switched(language_model_config(), 1);
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f32}) {
    LanguageModel fresh(language_model_config(), 1);
    const std::vector<Tensor> expected = gradients(fresh, precision), found = gradients(switched, precision);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(test::same_bits(found[i], expected[i])) << i;
  }
}

TEST(LanguageModel, ASavedModelIsTheSameModelToTheBit) {
  for (const Position& position : test::position_cases()) {
    const TemporaryFolder folder;
    const LanguageModel model(language_model_config(position), 9);
    model.save(folder.path());
    const LanguageModel loaded = LanguageModel::load(folder.path());
    EXPECT_EQ(loaded.config().transformer.position, position);
    EXPECT_EQ(loaded.config().train_length, 16);
    EXPECT_EQ(loaded.parameter_count(), model.parameter_count());
    const std::vector<int32_t> stream = random_ids({200}, 4, 256).to_ints();
    const Evaluation a = evaluate(model, stream, {.length = 16, .stride = 5});
    const Evaluation b = evaluate(loaded, stream, {.length = 16, .stride = 5});
    EXPECT_EQ(a.nll_sum, b.nll_sum) << name_of(position);
  }
}

TEST(LanguageModel, EveryConfigurationSurvivesTheFolder) {
  LanguageModelConfig config = language_model_config();
  TransformerConfig& t = config.transformer;
  t.attention.kv_heads = 2;
  t.block.bias = true;
  t.block.dropout = 0.25f;
  t.attention.dropout = 0.5f;
  t.attention.alibi_bias_max = 16;
  for (const Activation activation : {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::relu2,
                                      Activation::swiglu, Activation::geglu, Activation::reglu}) {
    for (const Norm norm : {Norm::layer_norm, Norm::rms_norm}) {
      const TemporaryFolder folder;
      t.block.activation = activation;
      t.block.norm = norm;
      t.block.expansion = activation == Activation::swiglu ? 2.5 : 4;
      const LanguageModel model(config, 3);
      model.save(folder.path());
      const LanguageModel loaded = LanguageModel::load(folder.path());
      const TransformerConfig& found = loaded.config().transformer;
      EXPECT_EQ(found.attention.kv_heads, 2);
      EXPECT_EQ(found.block.bias, true);
      EXPECT_EQ(found.block.dropout, 0.25f);
      EXPECT_EQ(found.attention.dropout, 0.5f);
      EXPECT_EQ(found.attention.alibi_bias_max, 16);
      EXPECT_EQ(found.block.activation, activation);
      EXPECT_EQ(found.block.norm, norm);
      EXPECT_EQ(found.ffn_dim(), t.ffn_dim());
      const Tensor ids = random_ids({1, 20}, 1, 257);
      EXPECT_TRUE(test::same_bits(model.logits(ids), loaded.logits(ids)));
    }
  }
}

TEST(LanguageModel, LearnedSlopesSurviveTheFolder) {
  const TemporaryFolder folder;
  LanguageModelConfig config = language_model_config();
  config.transformer.attention.slope_training = SlopeTraining::learned_random;
  const LanguageModel model(config, 3);
  model.save(folder.path());
  const LanguageModel loaded = LanguageModel::load(folder.path());
  EXPECT_EQ(loaded.slopes(), model.slopes());
  EXPECT_EQ(loaded.config().transformer.attention.slope_training, SlopeTraining::learned_random);
  const Tensor ids = random_ids({1, 20}, 1, 257);
  EXPECT_TRUE(test::same_bits(model.logits(ids), loaded.logits(ids)));
}

TEST(LanguageModel, DamagedFoldersAreRefusedWithTheFileAndTheReason) {
  const TemporaryFolder folder;
  LanguageModel(language_model_config(), 9).save(folder.path());
  const auto load = [&] { LanguageModel::load(folder.path()); };
  const std::string config = core::read_file(folder.path() / "config.json");
  const std::string weights = core::read_file(folder.path() / "model.safetensors");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = config;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    core::write_file(folder.path() / "config.json", changed.replace(at, from.size(), to));
    return test::message_of(load);
  };
  EXPECT_NE(with("\"mpt\"", "\"gpt2\"").find("model_type is 'gpt2'"), std::string::npos);
  EXPECT_NE(with("\"n_layers\": 2", "\"n_layers\": 3").find("blocks.2"), std::string::npos);
  EXPECT_NE(with("\"n_layers\": 2", "\"n_layers\": 1").find("no place"), std::string::npos);
  EXPECT_NE(with("\"n_heads\": 4", "\"n_heads\": 5").find("multiple of n_heads, 5"), std::string::npos);
  EXPECT_NE(with("\"clip_qkv\": null", "\"clip_qkv\": 6").find("clip_qkv"), std::string::npos);
  EXPECT_NE(with("\"qk_ln\": false", "\"qk_ln\": true").find("qk_ln"), std::string::npos);
  EXPECT_NE(with("\"d_model\": 32", "\"d_model\": 64").find("shape"), std::string::npos);
  const int64_t before = tensor_bytes();
  reset_peak_tensor_bytes();
  EXPECT_NE(with("\"n_layers\": 2", "\"n_layers\": 3").find("has no tensor \"transformer.blocks.2.norm_1"),
            std::string::npos);
  EXPECT_NE(with("\"n_layers\": 2", "\"n_layers\": 9999").find("says n_layers 9999"), std::string::npos);
  EXPECT_EQ(peak_tensor_bytes(), before);  // nothing of that size was made
  EXPECT_NE(with("{", "").find("config.json"), std::string::npos);
  core::write_file(folder.path() / "config.json", config);
  for (const size_t size : {size_t{0}, size_t{7}, size_t{100}, weights.size() / 2, weights.size() - 1}) {
    core::write_file(folder.path() / "model.safetensors", weights.substr(0, size));
    SCOPED_TRACE(size);
    expect_error(load, "model.safetensors");
  }
  std::filesystem::remove(folder.path() / "model.safetensors");
  expect_error(load, "model.safetensors");
  expect_error([] { LanguageModel::load("/no/such/folder"); }, "/no/such/folder");
}

TEST(LanguageModel, OtherMptFilesAreRead) {
  // What llm-foundry writes: keys we do not write, a null where there is no value, learned_pos_emb next to alibi.
  const TemporaryFolder folder;
  LanguageModel(language_model_config(), 9).save(folder.path());
  core::write_file(folder.path() / "config.json", R"({"architectures": ["MPTForCausalLM"], "model_type": "mpt",
    "attn_config": {"alibi": true, "alibi_bias_max": 8, "attn_impl": "torch", "attn_pdrop": 0, "clip_qkv": null,
                    "attn_type": "multihead_attention", "qk_ln": false, "softmax_scale": null, "prefix_lm": false},
    "d_model": 32, "n_heads": 4, "n_layers": 2, "expansion_ratio": 4, "max_seq_len": 2048, "vocab_size": 257,
    "no_bias": true, "norm_type": "low_precision_layernorm", "learned_pos_emb": true, "logit_scale": null,
    "init_config": {"name": "kaiming_normal_"}, "emb_pdrop": 0, "resid_pdrop": 0, "embedding_fraction": 1.0})");
  const LanguageModel loaded = LanguageModel::load(folder.path());
  EXPECT_EQ(loaded.config().transformer.position, Position::alibi);
  EXPECT_EQ(loaded.config().train_length, 2048);
}

TEST(LanguageModel, PresetsExistAndUnknownOnesListThem) {
  for (const std::string& name : preset_names()) EXPECT_NO_THROW(preset(name).validate());
  expect_error<UsageError>([] { preset("huge"); }, "tiny");
}

TEST(LanguageModel, BadIdsAreNamed) {
  const LanguageModel model(language_model_config(), 1);
  EXPECT_THROW(model.nll(random_ids({2, 9}, 1, 257), random_ids({2, 8}, 1, 257)), Error);
  Tensor ids = random_ids({1, 4}, 1, 257);
  ids.data<int32_t>()[2] = 300;
  expect_error([&] { model.logits(ids); }, "300");
}

}  // namespace
}  // namespace alibi::model
