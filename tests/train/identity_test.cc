#include "train/identity.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "testing.h"
#include "train/small_run.h"

namespace alibi::training {
namespace {

TEST(Fingerprint, SeesEveryTokenOfAnOrdinaryTextAndTheSameAtAnyThreadCount) {
  std::vector<int32_t> tokens = test::stream(200'001);
  const std::string whole = fingerprint(tokens);
  EXPECT_EQ(whole.size(), 16u);
  for (const size_t place : {size_t{0}, size_t{65535}, size_t{65536}, size_t{131072}, size_t{200'000}}) {
    tokens[place] ^= 1;
    EXPECT_NE(fingerprint(tokens), whole) << place;
    tokens[place] ^= 1;
  }
  EXPECT_NE(fingerprint(std::span(tokens).first(200'000)), whole);
  std::swap(tokens[0], tokens[1]);
  EXPECT_NE(fingerprint(tokens), whole);
  std::swap(tokens[0], tokens[1]);
  const test::RuntimeGuard guard;
  for (const int count : {1, 3}) {
    set_threads(count);
    EXPECT_EQ(fingerprint(tokens), whole);
  }
  EXPECT_NE(fingerprint({}), whole);
}

TEST(Fingerprint, OfALongTextSeesBothEnds) {
  std::vector<int32_t> tokens((size_t{1} << 26) + (1 << 18) + 5, 7);
  const std::string whole = fingerprint(tokens);
  for (const size_t place : {size_t{0}, tokens.size() - 1}) {
    tokens[place] = 8;
    EXPECT_NE(fingerprint(tokens), whole);
    tokens[place] = 7;
  }
  tokens.pop_back();
  EXPECT_NE(fingerprint(tokens), whole);
}

TEST(Identity, SaysWhatDiffers) {
  const LanguageModel model = test::small_model();
  const std::vector<int32_t> tokens = test::stream(100);
  const TrainOptions options = test::short_run();
  const formats::OrderedJson identity = identity_of(model, tokens, {}, options);
  EXPECT_TRUE(differences(identity, formats::Json::parse(identity.dump())).empty());

  TrainOptions changed = options;
  changed.seed = 12;
  changed.optimizer = Optimizer::nag;
  const std::vector<std::string> found =
      differences(identity_of(model, tokens, {}, changed), formats::Json::parse(identity.dump()));
  EXPECT_EQ(found, (std::vector<std::string>{"optimizer is \"nag\", was \"adamw\"", "seed is 12, was 0"}));

  formats::Json older = formats::Json::parse(identity.dump());
  older.erase("layers");
  older["unheard_of"] = 1;
  EXPECT_EQ(differences(identity, older),
            (std::vector<std::string>{"layers is 2, was not recorded", "unheard_of is not set, was 1"}));
}

TEST(Identity, FieldsOfAnotherPositionMethodAreNotNamed) {
  const std::vector<int32_t> tokens = test::stream(100);
  const auto identity = [&](Position position) {
    return identity_of(test::small_model(position), tokens, {}, test::short_run());
  };
  EXPECT_FALSE(identity(Position::alibi).contains("t5_buckets"));
  EXPECT_EQ(differences(identity(Position::alibi), formats::Json::parse(identity(Position::rotary).dump())),
            std::vector<std::string>{"position is \"alibi\", was \"rotary\""});
  // A comparison has several methods, and their fields.
  EXPECT_EQ(differences({{"t5_buckets", 16}}, {{"t5_buckets", 32}}),
            std::vector<std::string>{"t5_buckets is 16, was 32"});
}

TEST(Identity, HoldsTheWholeHeldOutText) {
  const LanguageModel model = test::small_model();
  const std::vector<int32_t> tokens = test::stream(100);
  std::vector<int32_t> valid = test::stream(50);
  TrainOptions options = test::short_run();
  options.eval_steps = 4;
  options.eval_tokens = 16;  // spread over the text
  const formats::Json before = formats::Json::parse(identity_of(model, tokens, valid, options).dump());
  EXPECT_EQ(differences(identity_of(model, tokens, valid, options), before), std::vector<std::string>());
  valid.back() += 1;
  const std::vector<std::string> found = differences(identity_of(model, tokens, valid, options), before);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].starts_with("held_out_text is ")) << found[0];
}

/// Changes one thing at a time; expects it, and nothing else, to be named, or nothing where there is no name.
class Named {
 public:
  Named() {
    config_.transformer = {.layers = 1,
                           .d_model = 32,
                           .attention = {.heads = 4},
                           .block = {.expansion = 2},
                           .embedding = {.max_length = 16}};
  }

  void training(const std::string& name, const std::function<void(TrainOptions&)>& change) {
    TrainOptions options = test::short_run();
    options.eval_steps = 4;
    change(options);
    expect_one(name, config_, options);
  }
  void model(const std::string& name, const std::function<void(LanguageModelConfig&)>& change,
             Position position = Position::alibi) {
    LanguageModelConfig config = config_, base = config_;
    config.transformer.position = base.transformer.position = position;
    change(config);
    expect_one(name, config, base_options(), &base);
  }
  const std::set<std::string>& names() const { return names_; }
  /// Of all identities that it saw.
  const std::set<std::string>& keys() const { return keys_; }

 private:
  static TrainOptions base_options() {
    TrainOptions options = test::short_run();
    options.eval_steps = 4;
    return options;
  }
  static formats::OrderedJson identity(const LanguageModelConfig& config, const TrainOptions& options) {
    const std::vector<int32_t> tokens = test::stream(100);
    return identity_of(LanguageModel(config, 1), tokens, tokens, options);
  }
  void expect_one(const std::string& name, const LanguageModelConfig& config, const TrainOptions& options,
                  const LanguageModelConfig* base_config = nullptr) {
    const formats::OrderedJson base = identity(base_config ? *base_config : config_, base_options());
    for (const auto& [key, value] : base.items()) keys_.insert(key);
    std::vector<std::string> found = differences(identity(config, options), formats::Json::parse(base.dump()));
    // Sizes change the number of parameters too.
    std::erase_if(found, [&](const std::string& text) { return text.starts_with("parameters is"); });
    if (name.empty()) {
      EXPECT_EQ(found, std::vector<std::string>());
      return;
    }
    ASSERT_EQ(found.size(), 1u) << name << ": " << fmt::format("{}", fmt::join(found, "; "));
    EXPECT_TRUE(found[0].starts_with(name + " is ")) << found[0];
    EXPECT_TRUE(names_.insert(name).second) << name;
  }

  LanguageModelConfig config_;
  std::set<std::string> names_, keys_;
};

TEST(Identity, NamesEveryOptionThatDiffers) {
  Named named;
  for (const formats::Option<TrainOptions>& option : formats::options_of<TrainOptions>) {
    named.training(option.changes_result ? option.name : "",
                   [&](TrainOptions& o) { option.set(o, test::another(option, o)); });
  }

  named.model("position", [](auto& c) { c.transformer.position = Position::none; });
  named.model("layers", [](auto& c) { c.transformer.layers = 2; });
  named.model("d_model", [](auto& c) { c.transformer.d_model = 64, c.transformer.block.expansion = 1; });
  named.model("heads", [](auto& c) { c.transformer.attention.heads = 8; });
  named.model("kv_heads", [](auto& c) { c.transformer.attention.kv_heads = 2; });
  named.model("ffn_dim", [](auto& c) { c.transformer.block.expansion = 3; });
  named.model("dropout", [](auto& c) { c.transformer.block.dropout = 0.25f; });
  named.model("attention_dropout", [](auto& c) { c.transformer.attention.dropout = 0.25f; });
  named.model("activation_dropout", [](auto& c) { c.transformer.block.activation_dropout = 0.25f; });
  named.model("embedding_dropout", [](auto& c) { c.transformer.embedding.dropout = 0.25f; });
  named.model("alibi_bias_max", [](auto& c) { c.transformer.attention.alibi_bias_max = 4; });
  named.model("causal", [](auto& c) { c.transformer.attention.causal = false; });
  named.model("bidirectional", [](auto& c) { c.transformer.attention.bidirectional = Bidirectional::two_slopes; });
  named.model("alibi_slopes", [](auto& c) { c.transformer.attention.alibi_slopes = {0.5f}; });
  named.model("slope_training", [](auto& c) { c.transformer.attention.slope_training = SlopeTraining::learned; });
  named.model("sliding_window", [](auto& c) { c.transformer.attention.sliding_window = 5; });
  named.model(
      "t5_buckets", [](auto& c) { c.transformer.attention.t5_buckets = 16; }, Position::t5);
  named.model(
      "t5_max_distance", [](auto& c) { c.transformer.attention.t5_max_distance = 64; }, Position::t5);
  named.model(
      "t5_init", [](auto& c) { c.transformer.attention.t5_init = 0.5; }, Position::t5);
  named.model(
      "t5_rate_factor", [](auto& c) { c.transformer.attention.t5_rate_factor = 4; }, Position::t5);
  named.model(
      "rotary_theta", [](auto& c) { c.transformer.attention.rotary_theta = 500; }, Position::rotary);
  named.model(
      "partial_rotary_factor", [](auto& c) { c.transformer.attention.position_numbers["partial_rotary_factor"] = 0.5; },
      Position::rotary);
  named.model(
      "max_length", [](auto& c) { c.transformer.embedding.max_length = 32; }, Position::learned);
  named.model("activation", [](auto& c) { c.transformer.block.activation = Activation::relu; });
  named.model("norm", [](auto& c) { c.transformer.block.norm = Norm::rms_norm; });
  named.model("norm_eps", [](auto& c) { c.transformer.block.norm_eps = 0.25f; });
  named.model("bias", [](auto& c) { c.transformer.block.bias = false; });
  named.model("final_norm", [](auto& c) { c.transformer.head.final_norm = true; });
  named.model("tolerance", [](auto& c) { c.transformer.attention.tolerance = 0.25f; });
  named.model("vocab_size", [](auto& c) { c.vocab_size += 1; });
  named.model("up_bias", [](auto& c) { c.transformer.block.up_bias = false; });
  named.model("normed_attention", [](auto& c) { c.transformer.block.normed_attention = true; });
  named.model("token_types", [](auto& c) { c.transformer.embedding.token_types = 2; });
  named.model("norm_bias", [](auto& c) { c.transformer.block.norm_bias = NormBias::never; });
  named.model("residual", [](auto& c) { c.transformer.block.residual = Residual::normed; });
  named.model("tied", [](auto& c) { c.transformer.head.tied = false; });
  named.model("logit_scale", [](auto& c) { c.transformer.head.logit_scale = 0.25f; });
  named.model("embedding_norm", [](auto& c) { c.transformer.embedding.norm = true; });
  named.model("softmax_scale", [](auto& c) { c.transformer.attention.softmax_scale = 0.25; });
  named.model("clip_qkv", [](auto& c) { c.transformer.attention.clip_qkv = 4; });
  named.model("qk_norm", [](auto& c) { c.transformer.attention.qk_norm = true; });
  named.model("output_gate", [](auto& c) { c.transformer.attention.output_gate = true; });
  named.model("canon_kernel", [](auto& c) { c.transformer.attention.canon_kernel = 4; });
  named.model("full_attention_interval", [](auto& c) { c.transformer.attention.full_attention_interval = 2; });
  named.model("nope_layer_interval", [](auto& c) { c.transformer.attention.nope_layer_interval = 2; });
  named.model("nope_heads", [](auto& c) { c.transformer.attention.nope_heads = 1; });
  named.model("ssmax", [](auto& c) { c.transformer.attention.ssmax = 0.25f; });
  named.model("sinks", [](auto& c) { c.transformer.attention.sinks = true; });
  named.model("embedding_scale", [](auto& c) { c.transformer.embedding.scale = 0.25f; });
  named.model("cutoffs", [](auto& c) { c.adaptive = AdaptiveConfig{.cutoffs = {100}}; });
  named.model("adaptive_dropout", [](auto& c) { c.adaptive = AdaptiveConfig{.cutoffs = {}, .dropout = 0.25f}; });

  std::set<std::string> all = named.names();
  all.insert({"parameters", "text_tokens", "text_fingerprint", "held_out_text"});  // what is no option
  // The first needs an untied head, the next two need qk_norm, and the others are of encoders that cannot be trained:
  // they never differ alone.
  all.insert({"normalized_head", "qk_norm_per_head", "qk_norm_eps", "predicts", "labels"});
  EXPECT_EQ(all, named.keys()) << "an option that this test does not change";
}

}  // namespace
}  // namespace alibi::training
