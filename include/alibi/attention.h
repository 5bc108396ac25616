// Attention with linear biases: softmax(q k' * scale - slope * |i - j|) v, without a mask or a bias in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "alibi/export.h"
#include "alibi/tensor.h"

namespace alibi {

/// ALiBi slopes for any number of heads, in the published head order (paper section 3 and its code): for n a power of
/// two, slope i is 2^(-bias_max * (i + 1) / n); otherwise those of the largest power of two below n, followed by every
/// other slope of twice as many heads. Throws UsageError if heads < 1 or bias_max is not positive and finite.
ALIBI_API std::vector<float> slopes(int heads, double bias_max = 8.0);

/// T5's relative position bias: a learned scalar per head for each bucket of distances (Raffel et al. 2020, section
/// 2.1). Causal: all buckets describe keys at or before the query. Bidirectional: the upper half is for keys after it.
struct BucketedBias {
  Tensor table;            ///< [num_buckets, heads], float32; added after the scores are scaled
  int max_distance = 128;  ///< all larger distances share the last bucket
};

/// Bucket of the key at position j for the query at position i, given distance = i - j.
ALIBI_API int relative_position_bucket(int64_t distance, bool causal, int num_buckets, int max_distance);

/// A query row i has position query_offset + i; key row j has position j: so for queries that are the last rows nothing
/// need be said, and any other place, 0 included, can be. distance = position of query - position of
/// key. At most one of `slopes` and `buckets` is set; with neither the scores carry no bias.
struct AttentionOptions {
  std::vector<float> slopes = {};        ///< ALiBi, [heads] or [batch * heads]; empty: none. >= 0
  std::vector<float> slopes_after = {};  ///< not causal: slopes of keys after the query; empty: `slopes` (symmetric)
                                         ///< +infinity in either closes that direction for the head (distance 0 stays)
  std::optional<BucketedBias> buckets = {};  ///< T5 bias
  bool causal = true;                        ///< keys after the query are not seen
  std::optional<int64_t> query_offset = {};  ///< position of the first query (chunks, shards); absent: the queries are
                                             ///< the last rows, keys - queries (of each packed sequence)
  float scale = 0;                           ///< factor of q k'; 0: 1 / sqrt(head_dim)
  int64_t window = 0;                        ///< > 0: only keys at |distance| < window are seen
  float dropout = 0;                         ///< probability that an attention weight is dropped, to the next multiple
                                             ///< of 2^-16; the rest is scaled up
  uint64_t dropout_seed = 0;                 ///< the mask is a function of (seed, batch, head, query row, key row)
  float tolerance = 0;                     ///< skip rule (docs/attention.md): far keys whose summed weight is provably
                                           ///< <= tolerance * the row's sum are not visited; 0: visit every key
  std::vector<int32_t> cu_seqlens_q = {};  ///< packed sequences: row offsets [sequences + 1], batch must be 1; each
  std::vector<int32_t> cu_seqlens_k = {};  ///< sequence's keys start at position 0, and nothing attends across them
};

/// What a call did. After attention() on Device::cuda, which does not wait, both are -1: count_blocks() waits.
struct AttentionStats {
  int64_t blocks_visited = 0;  ///< (query block, key block) pairs computed
  int64_t blocks_total = 0;    ///< pairs that causality, window and sequence bounds leave
};

/// What the kernel of a forward call left for its own backward pass. Opaque, but it can be kept as two plain tensors
/// between the passes, as frameworks do, and restored, also in another process or by another kernel: one that did not
/// make it visits every key. A handle: copies share the content.
class ALIBI_API KernelState {
 public:
  KernelState();
  ~KernelState();
  KernelState(const KernelState&);
  KernelState& operator=(const KernelState&);

  /// [batch, heads, queries] float32; shares memory with the state (and often with AttentionState::lse).
  Tensor saved_lse() const;
  /// [saved_words()] int32.
  Tensor saved_blocks() const;
  /// Size of saved_blocks() after attention() with queries of this shape, known before it: it depends on no value but
  /// the options. With tolerance 0 it is constant.
  static int64_t saved_words(int64_t batch, int64_t queries, int64_t heads, const AttentionOptions& options);
  /// Throws Error if the tensors are not those of a state.
  static KernelState restore(const Tensor& saved_lse, const Tensor& saved_blocks);

  struct State;  ///< kernel-private
  State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

/// What the backward pass needs of the forward pass besides its inputs and output.
struct AttentionState {
  Tensor lse;  ///< [batch, heads, queries] float32: log of the sum of exp(score), scores in the relative form
               ///< -slope * |distance|; -infinity for a row without keys
  AttentionStats stats;
  KernelState kernel;
};

/// The numbers of the call that filled the state.
ALIBI_API AttentionStats count_blocks(const AttentionState& state);

/// q [batch, queries, heads, head_dim], k and v [batch, keys, kv_heads, head_dim], out like q; any strides with a unit
/// inner stride. heads is a multiple of kv_heads; head h reads key/value head h / (heads / kv_heads). float32, or
/// bfloat16 with float32 accumulation and statistics (all four alike). A query that sees no key gives zeros.
/// Memory beyond the tensors is O(queries + keys). The same bits at any number of threads.
/// out must share no memory with q, k or v: it is written while they are read. Throws Error, naming the argument, if
/// shapes, strides or options do not fit, or if an output begins where an input does or lies across it.
/// Source: paper section 3, equation in the caption of figure 3; online softmax (Milakov & Gimelshein 2018).
ALIBI_API void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                         Tensor& out, AttentionState* state = nullptr);

/// The same; returns out, like q but contiguous.
ALIBI_API Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {},
                           AttentionState* state = nullptr);

/// Gradients of attention's inputs; dq, dk, dv are overwritten and may be strided like q, k, v. They must share no
/// memory with each other nor with an input.
/// `state` is what the forward call with the same inputs and options filled.
/// If dtable is given ([num_buckets, heads], float32) the gradient of the T5 bias table is ADDED to it;
/// if dslopes is given (float32, shaped like `slopes`: [heads] or [batch * heads]) the gradient of the slopes (paper
/// section 3: they can be learned) likewise; with `slopes_after` it is that of `slopes` alone. Both are deterministic.
struct AttentionBiasGradients {
  Tensor* dtable = nullptr;
  Tensor* dslopes = nullptr;
};
ALIBI_API void attention_backward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                                  const Tensor& out, const AttentionState& state, const AttentionOptions& options,
                                  Tensor& dq, Tensor& dk, Tensor& dv, AttentionBiasGradients bias_gradients = {});

/// Attention over the union of two disjoint sets of keys, from attention over each with the same queries (out_a, out_b
/// [batch, queries, heads, head_dim]; lse_a, lse_b [batch, heads, queries], contiguous). Positions stay those of the
/// whole: keys that begin at `first` are attended to with the query_offset of the whole - first. out and lse may be
/// out_a and lse_a, or out_b and lse_b, themselves; any other overlap is an error.
/// out_a and out_b may be float32 where out is bfloat16, so that parts are rounded once.
ALIBI_API void merge_attention(const Tensor& out_a, const Tensor& lse_a, const Tensor& out_b, const Tensor& lse_b,
                               Tensor& out, Tensor& lse);

/// The same formula written plainly in float64, row by row: the oracle of the tests and a fallback to read.
/// lse may be null. Outputs are [.., contiguous] double vectors shaped like q and [batch, heads, queries].
ALIBI_API void attention_reference(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                   std::vector<double>& out, std::vector<double>* lse = nullptr);

struct AttentionReferenceGradients {
  std::vector<double> dq, dk, dv;  ///< shaped like q, k, v, contiguous
  std::vector<double> dtable;      ///< [num_buckets, heads], empty without buckets
  std::vector<double> dslopes;     ///< like `slopes`, empty without
};
ALIBI_API void attention_backward_reference(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                                            const AttentionOptions& options, AttentionReferenceGradients& gradients);

}  // namespace alibi
