// A run that takes a moment, for the tests of this room.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "alibi/train.h"
#include "small_config.h"
#include "train/option_list.h"

namespace alibi::test {

inline LanguageModel small_model(Position position = Position::alibi, float dropout = 0,
                                 SlopeTraining slope_training = SlopeTraining::fixed) {
  LanguageModelConfig config = small_config();
  config.transformer.block.dropout = dropout;
  config.transformer.attention.slope_training = slope_training;
  config.transformer.attention.t5_buckets = 16;
  return LanguageModel(with_position(config, position, 16), 1);
}

/// A text with structure to learn: each byte says which comes next.
inline std::vector<int32_t> stream(int64_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>("the cat sat on a mat. "[i % 22]);
  return tokens;
}

/// 30 updates.
inline TrainOptions short_run() {
  TrainOptions options;
  options.train_length = 16;
  options.train_tokens = 30 * 256;
  options.batch_tokens = 256;
  options.micro_batch_tokens = 128;
  options.learning_rate = 5e-3;
  return options;
}

/// A value of an option that it does not have.
template <class Options>
OptionValue another(const formats::Option<Options>& option, const Options& options) {
  const OptionValue now = option.get(options);
  if (const auto* flag = std::get_if<bool>(&now)) return !*flag;
  if (const auto* count = std::get_if<int64_t>(&now)) return *count + 16;
  if (const auto* seed = std::get_if<uint64_t>(&now)) return *seed + 1;
  if (const auto* number = std::get_if<double>(&now)) return *number / 2 + 0.125;
  return std::string(std::get<std::string>(now) == option.choices[0] ? option.choices[1] : option.choices[0]);
}

inline std::vector<float> weights(const LanguageModel& model) {
  std::vector<float> all;
  for (const Parameter* parameter : model.parameters()) {
    const std::vector<float> values = parameter->value.to_floats();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace alibi::test
