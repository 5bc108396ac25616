// Inputs of the attention benchmark: random tensors, or the queries, keys and values of a trained model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "alibi/attention.h"
#include "alibi/language_model.h"

namespace alibi::bench {

/// One call: q [1, length, heads, head_dim], k and v [1, length, kv_heads, head_dim].
struct AttentionInputs {
  Tensor q, k, v;
  AttentionOptions options;  ///< the benchmark sets the tolerance

  int64_t length() const { return q.size(1); }
  /// The first `length` rows of each tensor. They share its memory.
  AttentionInputs first(int64_t length) const;
  /// One query head and the keys that it reads. They share the memory.
  AttentionInputs head(int64_t head) const;
  AttentionInputs to(DType dtype) const;
};

/// Names of the biases whose attention can be measured, and "none".
std::vector<std::string> measured_positions();

struct AttentionShape {
  int64_t heads = 8;
  int64_t kv_heads = 0;  ///< 0 selects the number of heads
  int64_t head_dim = 64;
  Position position = Position::alibi;  ///< one of measured_positions()

  int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  /// Throws UsageError that names the option.
  void validate() const;
};

/// Independent standard normal numbers.
Tensor normal_tensor(const Shape& shape, uint64_t seed, uint64_t stream);

/// Causal attention with the published slopes, with gates whose mean falls as these slopes, with a T5 table of 32
/// buckets, or with a formula of the distance that has the mean numbers of a new model's.
AttentionInputs random_inputs(const AttentionShape& shape, int64_t length, uint64_t seed);

/// Runs the model over the tokens in one pass and keeps the attention inputs of each layer.
std::vector<AttentionInputs> capture(const LanguageModel& model, const std::vector<int32_t>& tokens);

/// A safetensors file with layers.0.q, layers.0.k, layers.0.v, layers.1.q, ..., all float32, and with what else the
/// attention of these layers depends on: biases, gates, sinks, scale, softcap, window and "causal". `about` is stored
/// as free text.
void save_inputs(const std::filesystem::path& file, const std::vector<AttentionInputs>& layers,
                 const std::map<std::string, std::string>& about);
/// Throws Error that names the file and the problem.
std::vector<AttentionInputs> load_inputs(const std::filesystem::path& file);

}  // namespace alibi::bench
