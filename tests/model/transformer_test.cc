#include "alibi/transformer.h"

#include <gtest/gtest.h>

#include "alibi/error.h"
#include "alibi/runtime.h"
#include "model/small_transformer.h"
#include "model/transformer_state.h"
#include "positions.h"
#include "testing.h"

namespace alibi::model {
namespace {

using test::dot;
using test::doubles;
using test::random_tensor;
using test::small_transformer;

struct Case {
  std::string name;
  TransformerConfig config;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Position& position : test::position_cases()) {
    all.push_back({test::case_name(position), small_transformer(position)});
    if (position == Position::alibi) continue;  // its forms for encoders are below
    if (position.bias == "gates") continue;     // for decoders only
    all.push_back({"encoder_" + test::case_name(position), small_transformer(position)});
    all.back().config.attention.causal = false;
  }
  TransformerConfig config = small_transformer();
  config.block.activation = Activation::swiglu;
  config.block.norm = Norm::rms_norm;
  config.attention.heads = 6;
  config.attention.kv_heads = 2;
  config.block.bias = false;
  all.push_back({"swiglu_rms_grouped", config});
  config = small_transformer();
  config.block.dropout = 0.2f;
  config.attention.dropout = 0.1f;
  config.block.activation = Activation::gelu_tanh;
  config.head.final_norm = false;
  all.push_back({"dropout_without_final_norm", config});
  config = small_transformer();
  config.block.activation_dropout = 0.15f;
  config.embedding.dropout = 0.1f;
  config.position = Position::learned;  // its table is below the dropout
  all.push_back({"dropout_of_activations_and_input", config});
  for (const Bidirectional form : {Bidirectional::symmetric, Bidirectional::one_sided, Bidirectional::two_slopes}) {
    config = small_transformer();
    config.attention.causal = false;
    config.attention.bidirectional = form;
    all.push_back({std::string("encoder_") + name_of(form), config});
  }
  config = small_transformer();
  config.attention.slope_training = SlopeTraining::learned;
  all.push_back({"learned_slopes", config});
  config.attention.causal = false;
  config.attention.slope_training = SlopeTraining::learned_random;
  all.push_back({"encoder_learned_slopes", config});
  config = small_transformer();
  config.attention.qk_norm = true;
  config.attention.clip_qkv = 0.9;
  config.attention.softmax_scale = 0.3;
  config.attention.kv_heads = 1;
  all.push_back({"qk_norm_clipped_scaled", config});
  config = small_transformer(position_from("rotary+gates"));
  config.attention.sinks = true;
  all.push_back({"rotary_gates_and_sinks", config});
  config = small_transformer(position_from("rotary+alibi"));
  config.attention.ssmax = 0.4f;
  config.attention.sliding_window = 5;
  config.attention.qk_norm = true;
  all.push_back({"scalable_softmax", config});
  config = small_transformer(position_from("gates"));
  config.attention.output_gate = true;
  config.attention.dropout = 0.1f;
  config.block.activation = Activation::swiglu;
  config.block.norm = Norm::rms_norm;
  all.push_back({"output_gate", config});
  config = small_transformer(position_from("rotary+gates"));
  config.attention.canon_kernel = 4;
  config.attention.output_gate = true;
  config.block.residual = Residual::normed;
  all.push_back({"canon", config});
  config = small_transformer(position_from("rotary+alibi"));
  config.attention.nope_layer_interval = 2;
  config.attention.slope_training = SlopeTraining::learned;
  all.push_back({"a_layer_without_positions", config});
  config = small_transformer(position_from("rotary+alibi"));
  config.attention.nope_heads = 1;
  all.push_back({"a_head_without_positions", config});
  config = small_transformer(position_from("rotary+gates"));
  config.attention.nope_layer_interval = 2;
  all.push_back({"a_layer_without_gates", config});
  config = small_transformer(position_from("rotary+t5"));
  config.attention.sliding_window = 3;
  config.attention.full_attention_interval = 2;
  all.push_back({"a_layer_without_window", config});
  config = small_transformer();
  config.attention.sinks = true;
  config.attention.slope_training = SlopeTraining::learned;
  all.push_back({"sinks_and_learned_slopes", config});
  config = small_transformer(Position::rotary);
  config.attention.qk_norm = true;
  config.block.norm = Norm::rms_norm;
  all.push_back({"qk_rms_norm_before_rotation", config});
  config.attention.qk_norm_per_head = true;
  config.attention.qk_norm_eps = 0.1f;
  config.attention.kv_heads = 1;
  all.push_back({"qk_rms_norm_per_head", config});
  config.block.norm = Norm::layer_norm;
  config.attention.kv_heads = 0;
  all.push_back({"qk_layer_norm_per_head", config});
  config = small_transformer();
  config.block.residual = Residual::normed;
  config.embedding.norm = true;
  config.block.bias = false;
  config.block.norm_bias = NormBias::always;
  config.block.dropout = config.embedding.dropout = 0.1f;
  all.push_back({"residual_normed", config});
  config = small_transformer();
  config.attention.causal = false;
  config.block.residual = Residual::normed;
  config.block.norm_bias = NormBias::never;
  config.head.final_norm = false;
  all.push_back({"encoder_residual_normed_without_final_norm", config});
  config = small_transformer();
  config.layers = 0;  // the final norm alone
  all.push_back({"no_layers", config});
  return all;
}

class TransformerCase : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, TransformerCase, testing::ValuesIn(cases()), [](const auto& i) { return i.param.name; });

constexpr StepSeed seed{3, 5, 1};

// The whole backward pass against differences of the whole forward pass, along random directions of each parameter
// and of the input, with a random cotangent.
TEST_P(TransformerCase, GradientsAreThoseOfTheForwardPass) {
  Transformer model(GetParam().config, 7);
  const Tensor x = random_tensor({2, 13, 24}, 1);
  const Tensor dy = random_tensor({2, 13, 24}, 2);
  for (size_t i = 0; Parameter & parameter : model.parameters()) {  // zeros and ones would hide terms
    const Tensor noise = random_tensor(parameter.value.shape(), 100 + i++, 0.1f);
    for (int64_t j = 0; j < noise.elements(); ++j) parameter.value.data<float>()[j] += noise.data<float>()[j];
  }
  const auto loss = [&](const Tensor& input) { return dot(doubles(model.forward(input, seed)), doubles(dy)); };
  model.zero_gradients();
  loss(x);
  const Tensor dx = model.backward(dy).clone();  // the next call overwrites it
  // The clipping of QKV has kinks: fewer values cross them in a short step.
  const float step = model.config().attention.clip_qkv > 0 ? 2.5e-4f : 4e-3f;

  const auto check_direction = [&](Tensor value, const Tensor& gradient, uint64_t at, const std::string& name) {
    const Tensor original = value.clone();
    const Tensor direction = random_tensor(value.shape(), 1000 + at);
    const double expected = dot(doubles(gradient), doubles(direction));
    const auto move = [&](float by) {
      for (int64_t j = 0; j < value.elements(); ++j) {
        value.data<float>()[j] = original.data<float>()[j] + by * direction.data<float>()[j];
      }
    };
    move(step);
    const double above = loss(x);
    move(-step);
    const double below = loss(x);
    value.copy_from(original);
    const double found = (above - below) / (2 * static_cast<double>(step));
    const double size = std::sqrt(dot(doubles(gradient), doubles(gradient)));
    EXPECT_TRUE(std::abs(found - expected) <= 1e-2 * size + 2e-5 / static_cast<double>(step))
        << name << ": " << found << " " << expected;
    EXPECT_GT(size, 0) << name;
  };
  for (size_t i = 0; i < model.parameters().size(); ++i) {
    const Parameter& parameter = model.parameters()[i];
    check_direction(parameter.value, parameter.gradient.clone(), i, parameter.name);
  }
  check_direction(x, dx, 999, "x");
}

TEST_P(TransformerCase, InferenceEqualsTheForwardPassWithoutDropout) {
  TransformerConfig config = GetParam().config;
  config.block.dropout = config.attention.dropout = config.block.activation_dropout = config.embedding.dropout = 0;
  Transformer model(config, 7);
  const Tensor x = random_tensor({3, 17, 24}, 1);
  const Tensor kept = x.clone();
  const Tensor y = model(x);
  EXPECT_TRUE(test::same_bits(y, model.forward(x, seed)));
  EXPECT_TRUE(test::same_bits(x, kept));
}

TEST_P(TransformerCase, SameBitsAtAnyThreadCount) {
  test::expect_same_bits_at_any_thread_count([&] {
    Transformer model(GetParam().config, 7);
    model.zero_gradients();
    const Tensor x = random_tensor({3, 29, 24}, 1);
    std::vector<Tensor> result{model.forward(x, seed), model.backward(random_tensor({3, 29, 24}, 2))};
    for (const Parameter& parameter : model.parameters()) result.push_back(parameter.gradient);
    return result;
  });
}

struct Step {
  Tensor y, dx;
  std::vector<Tensor> gradients;
  std::vector<std::string> names;

  std::vector<Tensor> all() const {
    std::vector<Tensor> tensors{y, dx};
    tensors.insert(tensors.end(), gradients.begin(), gradients.end());
    return tensors;
  }
};

Step forward_and_backward(const TransformerConfig& config, Precision precision, bool recompute) {
  Transformer model(config, 7);
  model.set_precision(precision);
  model.set_recompute(recompute);
  model.zero_gradients();
  const Tensor y = model.forward(random_tensor({3, 29, 24}, 1), seed);
  const Tensor dx = model.backward(random_tensor({3, 29, 24}, 2).to(y.dtype())).clone();
  Step step{y, dx, {}, {}};
  for (const Parameter& parameter : model.parameters()) {
    step.gradients.push_back(parameter.gradient);
    step.names.push_back(parameter.name);
  }
  return step;
}

TEST_P(TransformerCase, RecomputingGivesTheSameBits) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const std::vector<Tensor> kept = forward_and_backward(GetParam().config, precision, false).all();
    const std::vector<Tensor> again = forward_and_backward(GetParam().config, precision, true).all();
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_TRUE(test::same_bits(kept[i], again[i])) << name_of(precision) << ", output " << i;
    }
  }
}

TEST_P(TransformerCase, Bfloat16IsFloat32UpToRounding) {
  const Step exact = forward_and_backward(GetParam().config, Precision::f32, false);
  const Step rounded = forward_and_backward(GetParam().config, Precision::bf16, false);
  EXPECT_EQ(rounded.y.dtype(), DType::bfloat16);
  EXPECT_EQ(rounded.dx.dtype(), DType::float32);
  const auto distance = [](const Tensor& a, const Tensor& b) {
    std::vector<double> difference = doubles(a);
    const std::vector<double> expected = doubles(b);
    for (size_t i = 0; i < difference.size(); ++i) difference[i] -= expected[i];
    return std::sqrt(dot(difference, difference) / dot(expected, expected));
  };
  EXPECT_TRUE(distance(rounded.y, exact.y) <= 1e-2);
  EXPECT_TRUE(distance(rounded.dx, exact.dx) <= 2e-2);
  // Rounding moves values across the bounds of a clipping, where the gradient jumps.
  const double most = GetParam().config.attention.clip_qkv > 0 ? 0.2 : 4e-2;
  for (size_t i = 0; i < exact.gradients.size(); ++i) {
    EXPECT_EQ(rounded.gradients[i].dtype(), DType::float32);
    // A constant that is added to all keys changes no weight of attention: its gradient is rounding.
    if (exact.names[i].ends_with("k_ln.bias")) continue;
    EXPECT_TRUE(distance(rounded.gradients[i], exact.gradients[i]) <= most) << "parameter " << i;
  }
}

TEST_P(TransformerCase, Bfloat16HasTheSameBitsAtAnyThreadCount) {
  test::expect_same_bits_at_any_thread_count(
      [&] { return forward_and_backward(GetParam().config, Precision::bf16, false).all(); });
}

TEST_P(TransformerCase, MemoryIsWhatWasPredicted) {
  const int64_t batch = 2, length = 31;
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    for (const Keep keep : {Keep::nothing, Keep::sums, Keep::all}) {
      const PassMode mode{precision, keep};
      const PassMemory::Bytes expected = PassMemory::predict(GetParam().config, mode, batch, length);
      const int64_t before = tensor_bytes();
      PassMemory memory;
      memory.prepare(GetParam().config, mode, batch, length);
      // Attention makes them when it runs.
      const int64_t states = keep == Keep::nothing ? 0 : keep == Keep::sums ? 1 : GetParam().config.layers;
      const int64_t lse = states * batch * length * GetParam().config.attention.heads * 4;
      // Blocks are rounded up to 64 bytes.
      EXPECT_NEAR(static_cast<double>(tensor_bytes() - before),
                  static_cast<double>(expected.kept + expected.scratch - lse), 64.0 * 40);
    }
  }
}

TEST(Transformer, RecomputingMayBeSwitchedAndGivesItsMemoryBack) {
  const test::RuntimeGuard guard;
  set_threads(1);  // others keep workspaces once they got a task, which may be late
  Transformer model(small_transformer(), 7);
  model.zero_gradients();
  const Tensor x = random_tensor({2, 100, 24}, 1), dy = random_tensor({2, 100, 24}, 2);
  std::vector<Tensor> outputs;
  std::vector<int64_t> bytes;
  for (const bool recompute : {false, true, false, true}) {
    model.set_recompute(recompute);
    outputs.push_back(model.forward(x, seed));
    outputs.push_back(model.backward(dy).clone());
    bytes.push_back(tensor_bytes() - static_cast<int64_t>(outputs.size() * x.bytes()));
  }
  for (size_t i = 2; i < outputs.size(); ++i) EXPECT_TRUE(test::same_bits(outputs[i], outputs[i % 2])) << i;
  EXPECT_LT(bytes[1], bytes[0]);
  EXPECT_EQ(bytes[2], bytes[0]);
  EXPECT_EQ(bytes[3], bytes[1]);
}

TEST(Transformer, Bfloat16CopiesFollowTheWeights) {
  Transformer model(small_transformer(), 7);
  const Tensor x = random_tensor({1, 9, 24}, 1);
  model.set_precision(Precision::bf16);
  const Tensor before = model(x);
  for (Parameter& parameter : model.parameters()) parameter.value.fill(0.01f);
  model.weights_changed();
  const Tensor after = model(x);
  EXPECT_FALSE(test::same_bits(before, after));
  Transformer other(small_transformer(), 8);
  for (Parameter& parameter : other.parameters()) parameter.value.fill(0.01f);
  other.set_precision(Precision::bf16);
  EXPECT_TRUE(test::same_bits(after, other(x)));
  other.set_precision(Precision::f32);
  EXPECT_FALSE(other.parameters().front().rounded.defined());
}

TEST_P(TransformerCase, OnlyEncodersSeeWhatComesLater) {
  TransformerConfig config = GetParam().config;
  config.block.dropout = config.attention.dropout = config.block.activation_dropout = config.embedding.dropout = 0;
  Transformer model(config, 7);
  const Tensor x = random_tensor({1, 20, 24}, 1);
  const Tensor changed = x.clone();
  for (int c = 0; c < 24; ++c) changed.data<float>()[15 * 24 + c] += static_cast<float>(c % 3);
  const Tensor a = model(x), b = model(changed);
  const double before = test::max_abs_diff(a.slice(1, 0, 15), b.slice(1, 0, 15));
  const double after = test::max_abs_diff(a.slice(1, 15, 20), b.slice(1, 15, 20));
  EXPECT_GT(after, 1e-3);
  if (config.attention.causal) {
    EXPECT_EQ(before, 0);
  } else {
    EXPECT_GT(before, 1e-4);
  }
}

TEST(Transformer, DropoutOfActivationsAndInputDropsTheirShareAndDiffersBetweenSteps) {
  TransformerConfig config = small_transformer();
  config.layers = 0;
  config.head.final_norm = false;
  config.embedding.dropout = 0.25f;
  Transformer model(config, 7);
  Tensor x({4, 500, 24});
  x.fill(1);
  const std::vector<float> y = model.forward(x, seed).to_floats();
  double dropped = 0;
  for (const float value : y) {
    if (value == 0) ++dropped;
    EXPECT_TRUE(value == 0 || std::abs(value - 4.0f / 3) <= 1e-6f) << value;
  }
  EXPECT_NEAR(dropped / static_cast<double>(y.size()), 0.25, 0.01);
  EXPECT_NE(y, model.forward(x, {3, 6, 1}).to_floats());

  config = small_transformer();
  config.block.activation_dropout = 0.25f;
  Transformer deep(config, 7);
  const Tensor input = random_tensor({2, 13, 24}, 1);
  const Tensor first = deep.forward(input, seed);
  EXPECT_FALSE(test::same_bits(first, deep.forward(input, {3, 6, 1})));
  EXPECT_TRUE(test::same_bits(first, deep.forward(input, seed)));
  EXPECT_FALSE(test::same_bits(first, deep(input)));
}

TEST(Transformer, WithoutLayersTheFinalNormIsLeft) {
  TransformerConfig config = small_transformer();
  config.layers = 0;
  Transformer model(config, 7);
  const Tensor x = random_tensor({2, 9, 24}, 1);
  const std::vector<double> in = doubles(x);
  std::vector<double> expected;
  for (size_t row = 0; row < 18; ++row) {
    double mean = 0, squares = 0;
    for (size_t c = 0; c < 24; ++c) mean += in[24 * row + c] / 24;
    for (size_t c = 0; c < 24; ++c) squares += std::pow(in[24 * row + c] - mean, 2) / 24;
    for (size_t c = 0; c < 24; ++c) expected.push_back((in[24 * row + c] - mean) / std::sqrt(squares + 1e-5));
  }
  EXPECT_TRUE(test::max_abs_diff(model(x), expected) <= 1e-5);
  EXPECT_TRUE(test::max_abs_diff(model.forward(x, seed), expected) <= 1e-5);
}

TEST(Transformer, EveryDropoutIsItsOwnInEachPartStepAndLayer) {
  for (const std::string kind : {"block", "attention", "activation", "embedding"}) {
    TransformerConfig config = small_transformer();
    float& rate = kind == "block"        ? config.block.dropout
                  : kind == "attention"  ? config.attention.dropout
                  : kind == "activation" ? config.block.activation_dropout
                                         : config.embedding.dropout;
    rate = 0.5f;
    Transformer model(config, 7);
    const Tensor x = random_tensor({2, 13, 24}, 1);
    const Tensor first = model.forward(x, {3, 5, 1});
    EXPECT_TRUE(test::same_bits(first, model.forward(x, {3, 5, 1})));
    for (const StepSeed& other : {StepSeed{4, 5, 1}, StepSeed{3, 6, 1}, StepSeed{3, 5, 2}}) {
      EXPECT_FALSE(test::same_bits(first, model.forward(x, other)));
    }
    if (kind == "embedding") continue;
    // The layers made alike, and one of them without effect: the other sees the same, but for its mask.
    std::vector<Parameter>& all = model.parameters();
    const auto at = [&](const std::string& name) {
      return std::find_if(all.begin(), all.end(), [&](const Parameter& p) { return p.name == name; });
    };
    for (const Parameter& parameter : all) {
      if (!parameter.name.starts_with("blocks.0.")) continue;
      at("blocks.1." + parameter.name.substr(9))->value.copy_from(parameter.value);
    }
    std::vector<Tensor> outputs;
    for (const std::string idle : {"blocks.0.", "blocks.1."}) {
      const Tensor out = at(idle + "attn.out_proj.weight")->value, down = at(idle + "ffn.down_proj.weight")->value;
      const Tensor kept_out = out.clone(), kept_down = down.clone();
      at(idle + "attn.out_proj.weight")->value.fill(0);
      at(idle + "ffn.down_proj.weight")->value.fill(0);
      outputs.push_back(model.forward(x, seed));
      at(idle + "attn.out_proj.weight")->value.copy_from(kept_out);
      at(idle + "ffn.down_proj.weight")->value.copy_from(kept_down);
    }
    EXPECT_GT(test::max_abs_diff(outputs[0], outputs[1]), 1e-3);
  }
}

TEST(Transformer, InferenceOnManyRowsIsThatOnFew) {
  // The feed-forward layer takes 4096 rows at a time.
  TransformerConfig config = small_transformer();
  config.layers = 1;
  const Transformer model(config, 7);
  const Tensor x = random_tensor({600, 7, 24}, 1), y = model(x);
  for (const int64_t entry : {0, 584, 585, 586, 599}) {
    const std::vector<double> alone = doubles(model(x.slice(0, entry, entry + 1)));
    EXPECT_TRUE(test::max_abs_diff(y.slice(0, entry, entry + 1), alone) <= 1e-5) << entry;
  }
}

TEST(Transformer, PublishedDefaultsTakeAnyLength) {
  const Transformer model(TransformerConfig{}, 1);
  EXPECT_EQ(model.config().layers, 6);
  EXPECT_EQ(model.config().ffn_dim(), 256);
  EXPECT_EQ(model(random_tensor({8, 100, 256}, 1)).shape(), (Shape{8, 100, 256}));
  EXPECT_EQ(model(random_tensor({1, 1, 256}, 1)).shape(), (Shape{1, 1, 256}));
  EXPECT_EQ(model(random_tensor({1, 777, 256}, 1)).shape(), (Shape{1, 777, 256}));
}

TEST(Transformer, WithoutPositionsAPermutedEncoderInputGivesAPermutedOutput) {
  TransformerConfig config = small_transformer();
  config.attention.causal = false;
  for (const Position position : {Position::none, Position::alibi}) {
    config.position = position;
    const Transformer model(config, 3);
    const Tensor x = random_tensor({1, 9, 24}, 1);
    Tensor reversed = Tensor::empty({1, 9, 24});
    for (int64_t t = 0; t < 9; ++t) reversed.slice(1, t, t + 1).copy_from(x.slice(1, 8 - t, 9 - t));
    const Tensor a = model(x), b = model(reversed);
    double worst = 0;
    for (int64_t t = 0; t < 9; ++t) {
      worst = std::max(worst, test::max_abs_diff(a.slice(1, t, t + 1), b.slice(1, 8 - t, 9 - t)));
    }
    EXPECT_TRUE(worst <= 1e-5) << name_of(position);  // symmetric ALiBi mirrors too
  }
}

TEST(Transformer, LearnedPositionsEndAtTheirTable) {
  TransformerConfig config = small_transformer();
  config.position = Position::learned;
  config.embedding.max_length = 10;
  const Transformer model(config);
  EXPECT_NO_THROW(model(random_tensor({1, 10, 24}, 1)));
  EXPECT_THROW(model(random_tensor({1, 11, 24}, 1)), Error);
}

/// The bounds by which a context evicts keys.
TEST(Transformer, NormsOfQueriesAreBounded) {
  for (const bool per_head : {false, true}) {
    TransformerConfig config = small_transformer(position_from("gates"));
    config.block.norm = Norm::rms_norm;
    config.attention.qk_norm = true;
    config.attention.qk_norm_per_head = per_head;
    Transformer model(config, 3);
    model.forward(random_tensor({1, 50, 24}, 1), seed);
    auto& state = core::state_of(model);
    const std::vector<double> bounds = state.blocks[0].query_norms();
    const std::vector<double> q = doubles(state.training.memory.products_of(0).q.y);  // [50, 3 heads * 8]
    ASSERT_EQ(bounds.size(), 3u);
    std::vector<double> largest(3);
    for (size_t row = 0; row < q.size() / 8; ++row) {
      const std::vector<double> head(q.begin() + static_cast<int64_t>(8 * row),
                                     q.begin() + static_cast<int64_t>(8 * row + 8));
      largest[row % 3] = std::max(largest[row % 3], std::sqrt(dot(head, head)));
    }
    for (size_t head = 0; head < 3; ++head) {
      EXPECT_LE(largest[head], bounds[head]);
      EXPECT_GE(largest[head], (per_head ? 0.98 : 0.5) * bounds[head]);
    }
  }
}

TEST(Transformer, BadInputIsNamed) {
  Transformer model(small_transformer());
  EXPECT_THROW(model(Tensor({2, 24})), Error);
  EXPECT_THROW(model(Tensor({2, 5, 23})), Error);
  EXPECT_THROW(model(Tensor({0, 5, 24})), Error);
  EXPECT_THROW(model.backward(Tensor({1, 5, 24})), Error);  // no forward call yet
  model.forward(random_tensor({1, 5, 24}, 1), seed);
  EXPECT_THROW(model.backward(Tensor({1, 5, 24})), Error);  // no gradients yet
  model.zero_gradients();
  EXPECT_THROW(model.backward(Tensor({1, 6, 24})), Error);
  EXPECT_NO_THROW(model.backward(Tensor({1, 5, 24})));
}

/// Keys whose weight bfloat16 could not show are left out, as many as with half its precision as tolerance.
TEST(TransformerPrecision, Bfloat16RaisesTheTolerance) {
  const Tensor x = test::random_tensor({1, 3000, 64}, 5);
  const auto output = [&](float tolerance, Precision precision) {
    TransformerConfig config;
    config.layers = 1;
    config.d_model = 64;
    config.attention.heads = 4;
    config.attention.tolerance = tolerance;
    Transformer model(config, 3);
    model.set_precision(precision);
    return model(x);
  };
  const Tensor raised = output(0x1p-24f, Precision::bf16), asked_for = output(0x1p-11f, Precision::bf16);
  EXPECT_TRUE(test::same_bits(raised, asked_for));
  EXPECT_FALSE(test::same_bits(output(0, Precision::bf16), asked_for)) << "0 visits all keys";
  EXPECT_FALSE(test::same_bits(output(0x1p-24f, Precision::f32), output(0x1p-11f, Precision::f32)));
}

}  // namespace
}  // namespace alibi::model
