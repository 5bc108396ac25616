// The start of gates. The tests of all models have the rest, their gradient, caches and windows among them.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "alibi/language_model.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::model {
namespace {

LanguageModel small(const char* position, const std::vector<std::pair<const char*, double>>& numbers = {}) {
  LanguageModelConfig config = test::small_config();
  for (const auto& [name, value] : numbers) config.transformer.attention.position_numbers[name] = value;
  return LanguageModel(with_position(config, position_from(position), 16), 1);
}

TEST(Gates, ANewModelIsOneWithAlibi) {
  const Tensor ids = test::random_ids({2, 60}, 1, 257);
  const Tensor alibi = small("alibi").logits(ids);
  for (const double tokens : {0.0, 1.0}) {
    EXPECT_LE(test::max_abs_diff(small("gates", {{"gate_tokens", tokens}}).logits(ids), alibi), 1e-5);
  }
  EXPECT_GT(test::max_abs_diff(small("gates", {{"gate_slopes", 0}}).logits(ids), alibi), 1e-3);
}

TEST(Gates, AreForDecoders) {
  LanguageModelConfig config = preset("tiny");
  config.transformer.attention.causal = false;
  test::expect_error<UsageError>([&] { LanguageModel(with_position(config, position_from("gates"), 16), 1); },
                                 "gates are for decoders");
}

}  // namespace
}  // namespace alibi::model
