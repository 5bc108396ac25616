// What differs between inference, cached inference and training: they are one walk through the layers, under a pass.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "alibi/kv_cache.h"
#include "alibi/language_model.h"
#include "attention/decode/eviction.h"
#include "core/memory.h"
#include "core/random.h"
#include "model/block.h"

namespace alibi::model {

/// What a pass leaves for a backward pass.
enum class Keep : uint8_t {
  nothing,  ///< inference: one layer's memory serves all
  sums,     ///< training: the stream at each norm; the rest is computed again
  all,      ///< training: nothing is computed again but norms and activation functions
};

struct PassMode {
  Precision precision = Precision::f32;
  Keep keep = Keep::all;
  Device device = Device::cpu;  ///< where the input lies, and all that is made of it

  DType type() const { return precision == Precision::bf16 ? DType::bfloat16 : DType::float32; }
  bool operator==(const PassMode&) const = default;
};

/// All of it is made before the first layer. The type of the activations is that of the precision; the residual stream
/// and its gradient are float32 in any case.
struct PassMemory {
  PassMode mode;
  int64_t batch = 0, length = 0;
  std::unique_ptr<const core::KeepMemory> keep;  // temporary memory of operators, reused between steps
  std::vector<BlockMemory> blocks;
  ResidualNorm entry;  // of the embeddings' norm, if there is one
  ResidualNorm last;
  BlockScratch scratch;
  Tensor stream;  // [R, C] float32: the stream where it is not kept; its gradient
  Tensor branch;  // [R, C] what returns to the stream; its gradient

  BlockMemory& of(int layer) { return blocks[mode.keep == Keep::nothing ? 0 : static_cast<size_t>(layer)]; }
  BlockProducts& products_of(int layer) { return mode.keep == Keep::sums ? scratch.recomputed : of(layer).products; }
  /// Where the stream begins.
  const Tensor& first() const;

  /// Of the mode that `mode` says.
  void each(const TransformerConfig& config, int64_t rows, const VisitTensor& visit);

  /// Makes all tensors for batches of this shape, unless the last call did.
  void prepare(const TransformerConfig& config, const PassMode& mode, int64_t batch, int64_t length);
  /// What a pass allocates, without allocating: bytes kept from the forward to the backward pass, and others.
  struct Bytes {
    int64_t kept = 0, scratch = 0;
  };
  static Bytes predict(const TransformerConfig& config, const PassMode& mode, int64_t batch, int64_t length);
};

/// q, k and v of one layer, only valid during the call.
using AttentionObserver =
    std::function<void(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options)>;

/// What dropout is for: each has random numbers of its own.
enum class Draw : uint64_t { attention_weights, attention_output, feed_forward, activation, embedding };

struct Pass {
  int64_t position = 0;            ///< of the first token
  std::span<KvCache> caches = {};  ///< of each layer: keys and values of the tokens before, which grow; empty: none
  kernels::Eviction* eviction = nullptr;  ///< receives each layer's attention over a cache
  float slope_factor = 1;                 ///< ALiBi's slopes are multiplied by it (Interpolation)
  /// Not empty: each row of the batch is a text of its own, read under its own position, caches, eviction and slope
  /// factor, in place of those above.
  std::span<Pass* const> sequences = {};
  /// What the position method tells attention: one for all layers, or one for each. Set before the first layer.
  std::vector<AttentionOptions> biases;
  std::optional<StepSeed> seed;    ///< training: what dropout draws; absent: nothing is dropped
  AttentionObserver on_attention;  ///< sees what each layer's attention is given, first layer first
  PassMemory memory;

  nn::BranchDropout dropout(float probability, int layer, Draw what) const {
    if (!seed) return {};
    return {probability, core::Random(seed->seed, core::mix(seed->step, seed->part, static_cast<uint64_t>(layer),
                                                            static_cast<uint64_t>(what)))};
  }
};

/// For the interpolation of the model and a text of this number of tokens.
float slope_factor(const LanguageModel& model, int64_t length);

/// LanguageModel::hidden() under a pass.
Tensor hidden(const LanguageModel& model, const Tensor& ids, Pass& pass);

}  // namespace alibi::model
