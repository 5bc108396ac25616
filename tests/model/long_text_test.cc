#include "model/long_text.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <vector>

#include "alibi/embed.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::model {
namespace {

using Change = std::function<void(TransformerConfig&)>;

LanguageModel small_model(const Change& change, uint64_t seed = 3) {
  LanguageModelConfig config = with_position(test::small_config(3), Position::alibi, 16);
  TransformerConfig& t = config.transformer;
  t.attention.causal = false;
  t.attention.alibi_bias_max = 5;  // slopes from 0.42 to 0.03: far keys are out of reach
  t.block.expansion = 2;
  change(t);
  return LanguageModel(with_vocab_size(config, 257), seed);
}

std::vector<int32_t> some_ids(int64_t count) {
  const Tensor ids = test::random_ids({count}, 5, 257);
  return ids.to_ints();
}

Tensor states_of(const LanguageModel& model, LongText text, int64_t* keys = nullptr) {
  Tensor all({std::ssize(text.ids), model.config().transformer.d_model});
  int64_t next = 0;
  const int64_t most = each_state(model, text, [&](int64_t first, const Tensor& states) {
    EXPECT_EQ(first, next);
    next += states.size(0);
    all.slice(0, first, next).copy_from(states);
  });
  EXPECT_EQ(next, std::ssize(text.ids));
  if (keys != nullptr) *keys = most;
  return all;
}

TEST(LongText, HasTheStatesOfTheWholeText) {
  const std::vector<int32_t> ids = some_ids(5300);
  const std::vector<std::pair<const char*, Change>> variants = {
      {"post-norm", [](auto& t) { t.block.residual = Residual::normed; }},
      {"geglu and two slopes",
       [](auto& t) {
         t.block.activation = Activation::geglu;
         t.attention.bidirectional = Bidirectional::two_slopes;
       }},
      {"one-sided", [](auto& t) { t.attention.bidirectional = Bidirectional::one_sided; }},
      {"decoder with shared keys",
       [](auto& t) {
         t.attention.causal = true;
         t.attention.kv_heads = 2;
       }},
      {"norms of queries and keys",
       [](auto& t) {
         t.attention.qk_norm = t.attention.sinks = t.attention.output_gate = true;
         t.attention.clip_qkv = 2;
         t.embedding.norm = true;
       }},
      {"norms of each head", [](auto& t) { t.attention.qk_norm = t.attention.qk_norm_per_head = true; }},
      {"no final norm", [](auto& t) { t.head.final_norm = false; }},
      {"window", [](auto& t) { t.attention.sliding_window = 70; }},
      {"rotation", [](auto& t) { t.position = Position::rotary + Position::alibi; }},
      {"sines", [](auto& t) { t.position = Position::sinusoidal + Position::alibi; }}};
  for (const auto& [name, change] : variants) {
    const LanguageModel model = small_model(change);
    const Tensor whole = model.hidden(Tensor::from(ids, {1, std::ssize(ids)})).reshape({std::ssize(ids), 32});
    for (const int64_t chunk : {1, 1500}) {
      int64_t keys = 0;
      const Tensor states = states_of(model, {.ids = ids, .types = {}, .chunk = chunk}, &keys);
      EXPECT_LE(test::relative_diff(test::doubles(states), test::doubles(whole)), 1e-6) << name << " chunk " << chunk;
      EXPECT_LT(keys, std::ssize(ids)) << name << " chunk " << chunk;  // otherwise nothing is tested
    }
  }
}

TEST(LongText, FilesAndThreadsDoNotChangeTheBits) {
  const std::vector<int32_t> ids = some_ids(2300);
  const LanguageModel model = small_model([](auto& t) { t.block.residual = Residual::normed; });
  const Tensor in_memory = states_of(model, {.ids = ids, .types = {}, .chunk = 512});
  const Tensor in_files = states_of(model, {.ids = ids, .types = {}, .chunk = 512, .memory = 0});
  EXPECT_TRUE(test::same_bits(in_memory, in_files));
  test::expect_same_bits_at_any_thread_count(
      [&] { return std::vector<Tensor>{states_of(model, {.ids = ids, .types = {}, .chunk = 512})}; });
}

TEST(LongText, ReducedPrecisionAndInterpolation) {
  const std::vector<int32_t> ids = some_ids(4000);
  LanguageModel model = small_model([](auto&) {});
  model.set_interpolation({.factor = 0.5});
  const auto difference = [&] {
    const Tensor whole = model.hidden(Tensor::from(ids, {1, std::ssize(ids)}));
    return test::relative_diff(test::doubles(states_of(model, {.ids = ids, .types = {}, .chunk = 1024})),
                               test::doubles(whole));
  };
  EXPECT_LE(difference(), 1e-6);
  model.set_precision(Precision::bf16);
  EXPECT_LE(difference(), 0.05);
}

TEST(LongText, NeedsABoundOfFarKeys) {
  const LanguageModel model = small_model([](auto& t) { t.attention.tolerance = 0; });
  EXPECT_FALSE(has_long_texts(model));
  const std::vector<int32_t> ids = some_ids(10);
  test::expect_error([&] { each_state(model, {.ids = ids, .types = {}}, [](int64_t, const Tensor&) {}); },
                     "expected a bias like ALiBi's and a tolerance");
}

TEST(LongText, EmbeddingsAndSpansAreThoseOfTheWholeText) {
  const LanguageModel model = small_model([](auto& t) { t.block.residual = Residual::normed; });
  const std::vector<EncoderInput> inputs = {
      {.ids = some_ids(2600), .pooled_from = 1}, {.ids = some_ids(40)}, {.ids = some_ids(5000)}};
  const std::vector<TokenSpan> spans = {{0, 1}, {500, 1100}, {1023, 1025}, {2599, 2600}, {0, 2600}};
  for (const Pooling pooling : {Pooling::mean, Pooling::first, Pooling::last}) {
    int64_t done = 0, all = 0;
    EmbedOptions whole{.pooling = pooling, .normalize = true, .batch_tokens = 10000}, parts = whole;
    parts.batch_tokens = 512;
    parts.on_progress = [&](int64_t tokens, int64_t total) {
      EXPECT_GE(tokens, done);
      done = tokens;
      all = total;
    };
    EXPECT_LE(test::max_abs_diff(embed_inputs(model, inputs, parts), embed_inputs(model, inputs, whole)), 1e-6);
    EXPECT_EQ(done, 7640);
    EXPECT_EQ(all, 7640);
    done = 0;
    EXPECT_LE(
        test::max_abs_diff(embed_spans(model, inputs[0], spans, parts), embed_spans(model, inputs[0], spans, whole)),
        1e-6);
  }
}

TEST(LongText, SaysWhereThereIsNoRoomForTemporaryFiles) {
  const LanguageModel model = small_model([](auto&) {});
  const std::vector<int32_t> ids = some_ids(600);
  const char* const before = std::getenv("TMPDIR");
  const std::string folder = before == nullptr ? "" : before;
  ::setenv("TMPDIR", "/nonexistent", 1);
  const std::string message = test::message_of([&] { states_of(model, {.ids = ids, .types = {}, .memory = 0}); });
  before == nullptr ? ::unsetenv("TMPDIR") : ::setenv("TMPDIR", folder.c_str(), 1);
  EXPECT_NE(message.find("TMPDIR"), std::string::npos) << message;
}

}  // namespace
}  // namespace alibi::model
