// The differences between inference, cached inference and training. All of them use one forward function with a pass.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "alibi/kv_cache.h"
#include "alibi/language_model.h"
#include "alibi/sequence_parallel.h"
#include "attention/decode/eviction.h"
#include "core/memory.h"
#include "core/random.h"
#include "model/block.h"
#include "model/position.h"

namespace alibi::model {

/// Reuses a tensor's memory in the next step if the shape is the same.
void reuse(Tensor& tensor, const Shape& shape, DType dtype);

/// What a forward pass keeps for the backward pass.
enum class Keep : uint8_t {
  nothing,  ///< inference: all layers share the memory of one
  sums,     ///< training: keeps the stream at each norm and recomputes the rest
  all,      ///< training: recomputes only norms and activation functions
};

struct PassMode {
  Precision precision = Precision::f32;
  Keep keep = Keep::all;

  DType type() const { return precision == Precision::bf16 ? DType::bfloat16 : DType::float32; }
  bool operator==(const PassMode&) const = default;
};

/// All tensors are allocated before the first layer. Activations have the data type of the precision. The residual
/// stream and its gradient are always float32.
struct PassMemory {
  PassMode mode;
  int64_t batch = 0, length = 0;
  std::unique_ptr<const core::KeepMemory> keep;  // temporary memory of operators, reused in the next step
  std::vector<BlockMemory> blocks;
  ResidualNorm entry;  // state of the embeddings' norm, if there is one
  ResidualNorm last;
  BlockScratch scratch;
  Tensor stream;  // [R, C] float32: the stream, if it is not kept; its gradient
  Tensor branch;  // [R, C]: the branch output that is added to the stream; its gradient

  BlockMemory& of(int layer) { return blocks[mode.keep == Keep::nothing ? 0 : static_cast<size_t>(layer)]; }
  BlockProducts& products_of(int layer) { return mode.keep == Keep::sums ? scratch.recomputed : of(layer).products; }
  /// The first tensor of the stream.
  const Tensor& first() const;

  /// Visits the tensors of this mode.
  void each(const TransformerConfig& config, int64_t rows, const VisitTensor& visit);

  /// Allocates all tensors for batches of this shape, unless the last call did.
  void prepare(const TransformerConfig& config, const PassMode& mode, int64_t batch, int64_t length);
  /// Predicts the allocation of a pass without allocating: bytes kept from the forward to the backward pass, and other
  /// bytes.
  struct Bytes {
    int64_t kept = 0, scratch = 0;
  };
  static Bytes predict(const TransformerConfig& config, const PassMode& mode, int64_t batch, int64_t length);
};

/// q, k and v of one layer, valid only during the call.
using AttentionObserver =
    std::function<void(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options)>;

/// Uses of dropout. Each has its own random numbers.
enum class Draw : uint64_t { attention_output = 1, feed_forward, activation, embedding };

/// A text from pass to pass, or several texts that have equal positions.
struct Session {
  int64_t position = 0;            ///< position of the next token
  std::span<KvCache> caches = {};  ///< one for each layer, with the keys and values before it; empty without a cache
  std::span<KvCache> inputs = {};  ///< with a short convolution, one for each layer: its inputs, a half as keys and a
                                   ///< half as values
  kernels::Eviction* eviction = nullptr;  ///< called after each layer's attention over a cache
  PositionScale position_scale = {};
  /// Options that the position method sets for attention: one for all layers, or one for each. Each pass sets them
  /// before its first layer.
  std::vector<AttentionOptions> biases = {};
};

/// The sequences that a pass reads: the rows of its batch, or if there are offsets cu_seqlens [number of sequences +
/// 1], sequences that lie end to end in a batch of one row.
struct Sequences {
  Session together;                     ///< of all sequences
  std::vector<Session*> sessions = {};  ///< if not empty: one for each sequence, instead of `together`
  std::vector<int32_t> cu_seqlens = {};
  const Tensor* token_types = nullptr;  ///< encoders: int32 like the ids; null: all are 0

  /// Attention is called once for each session.
  size_t session_count() const { return sessions.empty() ? 1 : sessions.size(); }
  Session& session(size_t index) { return sessions.empty() ? together : *sessions[index]; }
  /// The part of a tensor [B, T, ...] that belongs to session(index).
  Tensor part(const Tensor& tensor, size_t index) const;
  /// Offsets of the sequences in a part; empty: each row is one.
  std::vector<int32_t> offsets() const { return sessions.empty() ? cu_seqlens : std::vector<int32_t>(); }
  /// Calls `run` with a part, or with the sequences of it that lie end to end.
  void each(std::vector<Tensor> parts, const std::function<void(std::span<Tensor>)>& run) const;
};

/// Training: the ranks that divide each sequence, and the length of the whole sequences, of which the input has this
/// rank's shard. Null: the input has whole sequences.
struct SequenceDivision {
  const SequenceRanks* ranks = nullptr;
  int64_t length = 0;
};

struct Pass {
  Sequences sequences;
  std::optional<StepSeed> seed;  ///< training: the random numbers of dropout; absent: no dropout
  SequenceDivision division;
  AttentionObserver on_attention;  ///< receives the inputs of each layer's attention, first layer first
  std::function<void(const Tensor& stream)> on_stream;  ///< inference: see ResidualStream::on_stream
  PassMemory memory;

  nn::BranchDropout dropout(float probability, int layer, Draw what) const {
    if (!seed) return {};
    return {probability, core::Random(seed->seed, core::mix(seed->step, seed->part, static_cast<uint64_t>(layer),
                                                            static_cast<uint64_t>(what)))};
  }
};

/// The scale of positions for the model's interpolation and a text of this number of tokens.
PositionScale position_scale(const LanguageModel& model, int64_t length);

/// The embeddings of ids [R], with those of their types unless null: y [R, C] float32, without positions.
void embed_ids(const LanguageModel& model, const Tensor& ids, const Tensor* token_types, Tensor& y);
const Transformer& transformer_of(const LanguageModel& model);
/// LanguageModel::hidden() with a pass.
Tensor hidden(const LanguageModel& model, const Tensor& ids, Pass& pass);
/// The classifier's outputs [B, labels] for the states of first tokens [B, C].
Tensor classify(const LanguageModel& model, const Tensor& states);

}  // namespace alibi::model
