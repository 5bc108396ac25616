// A language model that takes a moment.
#pragma once

#include "alibi/language_model.h"

namespace alibi::test {

inline LanguageModelConfig small_config(int layers = 2, int d_model = 32, int heads = 4) {
  LanguageModelConfig config = preset("tiny");
  config.transformer.layers = layers;
  config.transformer.d_model = d_model;
  config.transformer.attention.heads = heads;
  return config;
}

}  // namespace alibi::test
