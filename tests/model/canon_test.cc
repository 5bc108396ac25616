// A model with a short convolution before attention (Canon-A): read in pieces, forked, rewound, in limited memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "alibi/context.h"
#include "alibi/engine.h"
#include "alibi/language_model.h"
#include "model/context_state.h"
#include "model/long_text.h"
#include "model/small_transformer.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

/// The convolution's weights start at zero, which would hide it.
LanguageModel canon_model(int taps = 4, Position position = Position::alibi) {
  LanguageModelConfig config;
  config.transformer = test::small_transformer(position);
  config.transformer.attention.canon_kernel = taps;
  config.vocab_size = 257;
  LanguageModel model(config, 3);
  for (Parameter* const parameter : model.parameters()) {
    if (parameter->name.find("canon") == std::string::npos) continue;
    parameter->value.copy_from(test::random_tensor(parameter->value.shape(), 7, 0.3f));
  }
  return model;
}

Tensor piece(const Tensor& ids, int64_t begin, int64_t end) { return ids.slice(1, begin, end).clone(); }

TEST(Canon, StartsAsTheModelWithoutIt) {
  LanguageModelConfig config;
  config.transformer = test::small_transformer();
  config.vocab_size = 37;
  const LanguageModel plain(config, 3);
  config.transformer.attention.canon_kernel = 4;
  const LanguageModel model(config, 3);
  const Tensor ids = test::random_ids({2, 20}, 1, 37);
  EXPECT_TRUE(test::same_bits(model.logits(ids), plain.logits(ids)));
  EXPECT_EQ(model.parameter_count(),
            plain.parameter_count() + 4 * config.transformer.layers * config.transformer.d_model);
}

TEST(Canon, ReadsOnlyTheTokensBefore) {
  const LanguageModel model = canon_model();
  Tensor ids = test::random_ids({2, 30}, 1, 257);
  const std::vector<float> before = model.logits(ids).to_floats();
  ids.data<int32_t>()[10] += 1;
  const std::vector<float> after = model.logits(ids).to_floats();
  for (size_t row = 0; row < 60; ++row) {
    const bool same = std::equal(before.begin() + static_cast<std::ptrdiff_t>(row * 257),
                                 before.begin() + static_cast<std::ptrdiff_t>((row + 1) * 257),
                                 after.begin() + static_cast<std::ptrdiff_t>(row * 257));
    EXPECT_EQ(same, row < 10 || row >= 30) << row;
  }
}

TEST(Canon, ReadInPiecesItGivesTheSame) {
  for (const int taps : {1, 4, 16}) {
    for (const Position position : {Position::alibi, Position::rotary}) {
      const LanguageModel model = canon_model(taps, position);
      const Tensor ids = test::random_ids({1, 200}, 1, 257), targets = test::random_ids({1, 200}, 2, 257);
      const std::vector<float> whole = model.nll(ids, targets);
      for (const DType cached : {DType::float32, DType::bfloat16}) {
        Context context(model, {.cached = cached});
        std::vector<float> found;
        for (const int64_t end : {1, 2, 3, 4, 60, 61, 62, 130, 131, 200}) {
          const int64_t begin = context.position();
          const std::vector<float> more = model.nll(piece(ids, begin, end), piece(targets, begin, end), context);
          found.insert(found.end(), more.begin(), more.end());
        }
        EXPECT_TRUE(test::max_abs_diff(found, whole) <= (cached == DType::float32 ? 1e-4 : 3e-2)) << taps;
      }
    }
  }
}

TEST(Canon, ForkedAndRewoundContextsGiveTheBitsOfFreshOnes) {
  const LanguageModel model = canon_model();
  const Tensor ids = test::random_ids({1, 230}, 1, 257), others = test::random_ids({1, 30}, 9, 257);
  const auto read_to = [&](Context& context, std::initializer_list<int64_t> ends) {
    Tensor logits;
    for (const int64_t end : ends) logits = model.next_logits(piece(ids, context.position(), end), context);
    return logits;
  };
  Context fresh(model), kept(model);
  const Tensor expected = read_to(fresh, {100, 120, 121, 122, 230});
  read_to(kept, {100, 120});
  Context fork = kept.fork();
  model.next_logits(others, fork);  // what a fork reads is its own
  model.next_logits(others, kept);
  for (Context* const context : {&kept, &fork}) {
    for (const int64_t back : {120, 100, 0}) {
      context->rewind(back);
      if (back == 0) read_to(*context, {100});
      if (back <= 100) read_to(*context, {120});
      EXPECT_TRUE(test::same_bits(read_to(*context, {121, 122, 230}), expected)) << back;
    }
  }
}

TEST(Canon, ATextReadAmongOthersIsReadAsAlone) {
  const LanguageModel model = canon_model();
  const Tensor ids = test::random_ids({3, 90}, 1, 257);
  const auto row = [&](int64_t r, int64_t begin, int64_t end) {
    return std::span<const int32_t>(ids.data<int32_t>() + r * 90 + begin, static_cast<size_t>(end - begin));
  };
  std::vector<Context> contexts;
  for (int i = 0; i < 3; ++i) contexts.emplace_back(model);
  PassMemory memory;
  // Each text has another number of tokens in each pass.
  const std::vector<std::array<int64_t, 3>> ends = {{5, 1, 40}, {6, 2, 41}, {70, 3, 42}, {90, 90, 90}};
  Tensor states;
  std::array<int64_t, 3> begins = {0, 0, 0};
  for (const std::array<int64_t, 3>& to : ends) {
    std::vector<RaggedRow> rows;
    for (size_t i = 0; i < 3; ++i) rows.push_back({&contexts[i], row(static_cast<int64_t>(i), begins[i], to[i])});
    states = read_ragged(model, rows, memory);
    begins = to;
  }
  const Tensor expected = model.hidden(ids);
  int64_t at = 0;
  for (int64_t i = 0; i < 3; ++i) {
    at += 90 - ends[2][static_cast<size_t>(i)];
    const Tensor last = states.slice(0, at - 1, at).clone();
    EXPECT_TRUE(test::max_abs_diff(last, expected.slice(0, i, i + 1).slice(1, 89, 90).clone().reshape({1, 24})) <=
                1e-4);
  }
}

TEST(Canon, AnEngineThatSharesPrefixesGeneratesTheSame) {
  const LanguageModel model = canon_model();
  Engine sharing(model, {.chunk_tokens = 16}), alone(model, {.chunk_tokens = 16, .prefix_bytes = 0});
  const Tensor ids = test::random_ids({1, 120}, 1, 257);
  for (const int64_t length : {100, 40, 120, 50}) {  // beginnings of one text
    EngineRequest request;
    request.prompt.assign(ids.data<int32_t>(), ids.data<int32_t>() + length);
    request.options.max_tokens = 8;
    request.samples = 2;
    request.logprobs = 0;
    const Engine::Handle found = sharing.submit(request), expected = alone.submit(request);
    EXPECT_EQ(found.wait().reused_tokens > 0, length != 100);
    for (size_t sample = 0; sample < 2; ++sample) {
      const std::vector<EngineToken>&tokens = found.wait().samples[sample].tokens,
            &others = expected.wait().samples[sample].tokens;
      ASSERT_EQ(tokens.size(), others.size());
      for (size_t i = 0; i < tokens.size(); ++i) {
        EXPECT_EQ(tokens[i].id, others[i].id) << length << " " << i;
        EXPECT_EQ(tokens[i].logprob, others[i].logprob) << length << " " << i;
      }
    }
  }
}

TEST(Canon, LimitedMemoryIsKeptAndAWindowLosesNothing) {
  LanguageModelConfig config = canon_model().config();
  config.transformer.attention.sliding_window = 100;
  const LanguageModel unlimited = canon_model();
  const LanguageModel windowed = unlimited.sharing_weights(
      [](LanguageModelConfig& changed) { changed.transformer.attention.sliding_window = 100; });
  const Tensor ids = test::random_ids({1, 3000}, 1, 257), targets = test::random_ids({1, 3000}, 2, 257);
  const std::vector<float> whole = windowed.nll(ids, targets);
  Context window(windowed), limited(unlimited, {.memory = 1 << 20}), growing(unlimited);
  std::vector<float> found;
  for (const int64_t end : {500, 501, 502, 503, 900, 1700, 1701, 2400, 3000}) {
    const int64_t begin = window.position();
    const Tensor part = piece(ids, begin, end), of_part = piece(targets, begin, end);
    const std::vector<float> more = windowed.nll(part, of_part, window);
    found.insert(found.end(), more.begin(), more.end());
    unlimited.nll(part, of_part, limited);
    unlimited.nll(part, of_part, growing);
    EXPECT_LE(limited.bytes(), 1 << 20) << end;
  }
  EXPECT_TRUE(test::max_abs_diff(found, whole) <= 1e-4);
  EXPECT_LT(3 * window.bytes(), growing.bytes());
  EXPECT_GT(limited.certificate().keys, 0);
  // It goes back to its last eviction at the earliest, and reads the same again.
  const int64_t earliest = core::state_of(window).earliest();
  ASSERT_GT(earliest, 0);
  const auto rest = [&] { return window.position() < 3000; };
  EXPECT_FALSE(rest());
  window.rewind(earliest);
  const std::vector<float> again = windowed.nll(piece(ids, earliest, 3000), piece(targets, earliest, 3000), window);
  EXPECT_TRUE(test::max_abs_diff(again, std::vector<float>(whole.begin() + earliest, whole.end())) <= 1e-4);
}

TEST(Canon, FoldersKeepIt) {
  const LanguageModel model = canon_model();
  const test::TemporaryFolder folder;
  model.save(folder.path());
  const LanguageModel loaded = LanguageModel::load(folder.path());
  EXPECT_EQ(loaded.config().transformer.attention.canon_kernel, 4);
  const Tensor ids = test::random_ids({2, 20}, 1, 257);
  EXPECT_TRUE(test::same_bits(loaded.logits(ids), model.logits(ids)));
  LanguageModel narrow = LanguageModel::load(folder.path());
  narrow.set_precision(Precision::bf16);
  EXPECT_TRUE(test::max_abs_diff(narrow.logits(ids), model.logits(ids)) <= 0.1);
  EXPECT_FALSE(has_long_texts(model));
}

TEST(Canon, EncodersAreRefused) {
  TransformerConfig config = test::small_transformer();
  config.attention.canon_kernel = 4;
  config.attention.causal = false;
  test::expect_error<UsageError>([&] { config.validate(); }, "canon_kernel is 4, expected 0 for an encoder");
}

}  // namespace
}  // namespace alibi::model
