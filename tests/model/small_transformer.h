// A transformer that takes a moment, for the tests of this room.
#pragma once

#include "alibi/transformer.h"

namespace alibi::test {

inline TransformerConfig small_transformer(Position position = Position::alibi) {
  TransformerConfig config;
  config.layers = 2;
  config.d_model = 24;
  config.attention.heads = 3;
  config.block.expansion = 2;
  config.block.dropout = 0;
  config.position = position;
  config.attention.t5_buckets = 8;
  config.attention.t5_max_distance = 12;
  config.embedding.max_length = 100;
  config.head.final_norm = true;
  return config;
}

}  // namespace alibi::test
