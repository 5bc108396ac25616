// A transformer that takes a moment, for the tests of this room.
#pragma once

#include "alibi/transformer.h"

namespace alibi::test {

inline TransformerConfig small_transformer(Position position = Position::alibi) {
  TransformerConfig config;
  config.layers = 2;
  config.d_model = 24;
  config.heads = 3;
  config.expansion = 2;
  config.dropout = 0;
  config.position = position;
  config.t5_buckets = 8;
  config.t5_max_distance = 12;
  config.max_length = 100;
  config.final_norm = true;
  return config;
}

}  // namespace alibi::test
