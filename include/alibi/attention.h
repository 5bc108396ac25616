// Attention with linear biases: softmax(q k' * softmax_scale - slope * |i - j|) v, without a mask or a bias in memory.
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

/// Query row i has position query_offset + i, and key row j has position j. The queries are the last rows by default;
/// set query_offset for any other position, including 0. distance = position of query - position of key. At most one of
/// `alibi_slopes`, `buckets` and `bias_by_distance` may be set; without any of them the scores have no bias.
struct AttentionOptions {
  /// [heads]; or [batch * heads], with packed sequences [sequences * heads]; empty: none. >= 0
  std::vector<float> alibi_slopes = {};
  /// Not causal: slopes of keys after the query; empty: `alibi_slopes` (symmetric). +infinity closes that direction for
  /// the head, except for distance 0.
  std::vector<float> alibi_slopes_after = {};
  std::optional<BucketedBias> buckets = {};  ///< T5 bias
  /// A bias of any other kind, as its values by distance: [distances, heads] float32, row d for distance d, added after
  /// the scores are scaled. Not causal: [2 * distances - 1, heads], from distance -(distances - 1) to distances - 1.
  /// The first and the last row also hold for all distances beyond.
  std::optional<Tensor> bias_by_distance = {};
  /// Forget gates (Forgetting Transformer): log f_t of each key t and query head, [batch, keys, heads] float32 of any
  /// strides, -2^40 to 0. The score of query i and key j has the sum of log f_t over t in (j, i] added to it, besides
  /// any of the biases above. -infinity begins a document: queries from this key on do not see the keys before it. A
  /// query past the last key counts as one there. Causal, on the device of q. With pages: [pages, page rows, heads].
  std::optional<Tensor> log_decay = {};
  bool causal = true;                        ///< keys after the query are not visible
  std::optional<int64_t> query_offset = {};  ///< position of the first query (chunks, shards); absent: the queries are
                                             ///< the last rows, keys - queries (of each packed sequence)
  float softmax_scale = 0;                   ///< factor of q k'; 0: 1 / sqrt(head_dim)
  int64_t sliding_window = 0;                ///< > 0: only keys at |distance| < sliding_window are visible
  int64_t sliding_window_after = 0;          ///< not causal: the window for keys after the query, which are visible at
                                             ///< -distance < sliding_window_after. 0: `sliding_window` (symmetric);
                                             ///< -1: no limit on that side
  float softcap = 0;    ///< > 0: a score is softcap * tanh(softmax_scale * q k' / softcap) plus its
                        ///< bias, 2^-20 to 2^20; 0: no cap
  float dropout_p = 0;  ///< probability that an attention weight is dropped, rounded to a multiple
                        ///< of 2^-16; other weights are scaled up
  /// [heads]; empty: none. A learned logit for each head that joins the softmax without a value: a row's weights are
  /// exp(score) / (exp(sink) + sum of exp(score)), so they may sum to less than 1 (Xiao et al. 2023, section 3.3;
  /// OpenAI's gpt-oss). It has no bias and no softcap, and dropout never drops it. -infinity: no sink
  std::vector<float> sinks = {};
  uint64_t dropout_seed = 0;  ///< the mask is a function of (seed, batch, head, query row, key row)
  float tolerance = 0;        ///< skip rule (docs/reference/attention.md): far keys whose summed weight is provably
                              ///< <= tolerance * the row's sum are not visited; 0: visit every key
  /// Keys and values in pages: k and v are [pages, page rows, kv_heads, head_dim], and row i of a sequence is row i %
  /// page rows of page block_table[sequence][i / page rows]. Contiguous int32 [sequences, pages of a sequence]. The
  /// number of keys comes from seqused_k, or with packed queries from the differences of cu_seqlens_k. No gradients.
  std::optional<Tensor> block_table = {};
  std::vector<int32_t> seqused_k = {};     ///< number of rows of k that each batch entry uses; empty: all rows
  std::vector<int32_t> leftpad_k = {};     ///< of these rows, the number before the first key; empty: 0
  std::vector<int32_t> cu_seqlens_q = {};  ///< packed sequences: row offsets [sequences + 1], batch must be 1; each
  std::vector<int32_t> cu_seqlens_k = {};  ///< sequence's keys start at position 0, and nothing attends across them
};

/// Counts of a call. After attention() on Device::cuda, which does not wait, both are -1 until count_blocks().
struct AttentionStats {
  int64_t blocks_visited = 0;  ///< (query block, key block) pairs computed
  int64_t blocks_total = 0;    ///< pairs that are visible by causality, window and sequence bounds
};

/// What the kernel of a forward call stores for its own backward pass. It is opaque, but can be saved as two plain
/// tensors between the passes, as frameworks do, and restored, also in another process or by another kernel. A kernel
/// that did not make it visits every key. A handle: copies share the content.
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
  /// Size of saved_blocks() after attention() with queries of this shape, known before the call: it depends on shapes
  /// and options only. With tolerance 0 it is constant.
  static int64_t saved_words(int64_t batch, int64_t queries, int64_t heads, const AttentionOptions& options);
  /// Throws Error if the tensors do not belong to a state.
  static KernelState restore(const Tensor& saved_lse, const Tensor& saved_blocks);
  /// A state in memory of the caller on a GPU: forward calls with it, whose AttentionState::lse the caller also sets,
  /// write there. They allocate nothing that outlives them, so they can be captured into a CUDA graph. The backward
  /// call reads the memory, also through another such object. `lse` is float32 [batch, heads, queries] and `blocks`
  /// int32 [saved_words()], both contiguous and on the device of the call. count_blocks() is not available.
  static KernelState in_memory(const Tensor& lse, const Tensor& blocks);

 private:
  friend struct core::Access;
  struct State;
  std::shared_ptr<State> state_;
};

/// What the backward pass needs from the forward pass, besides its inputs and output.
struct AttentionState {
  Tensor lse;  ///< [batch, heads, queries] float32: log of the sum of exp(score), and of exp(sink) if there is one,
               ///< with biases in the relative form -slope * |distance|; -infinity for a row without keys and sink
  AttentionStats stats;
  KernelState kernel;
};

/// Counts of the call that filled the state; waits for a GPU.
ALIBI_API AttentionStats count_blocks(const AttentionState& state);

/// q [batch, queries, heads, head_dim], k and v [batch, keys, kv_heads, head_dim], out like q; any strides with a unit
/// inner stride. heads is a multiple of kv_heads; head h reads key/value head h / (heads / kv_heads). All four are
/// float32, or all are bfloat16 with float32 accumulation and statistics. A query without visible keys gives zeros.
/// Memory beyond the tensors is O(queries + keys). The same bits at any number of threads. out must not share memory
/// with q, k or v. Throws Error that names the argument if shapes, strides or options do not match, or if an output
/// overlaps an input. Source: paper section 3, equation in the caption of figure 3; online softmax (Milakov &
/// Gimelshein 2018).
ALIBI_API void attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                         Tensor& out, AttentionState* state = nullptr);

/// The same; returns a new contiguous tensor of the shape of q.
ALIBI_API Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {},
                           AttentionState* state = nullptr);

/// Throws what attention() would throw for these arguments, and computes nothing: for callers that change memory before
/// they call it, such as append_keys().
ALIBI_API void check_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                               const Tensor& out);

/// Gradients of attention's inputs; dq, dk, dv are overwritten and may be strided like q, k, v. They must not share
/// memory with each other or with an input. `state` is the state of the forward call with the same inputs and options.
/// If dtable is given (float32, with the shape of buckets.table or bias_by_distance), the gradient of that table is
/// ADDED to it. If dslopes is given (float32, shaped like `alibi_slopes`: [heads] or [sequences * heads]), the gradient
/// of the slopes is added to it (paper section 3: slopes can be learned); with `alibi_slopes_after` this is the
/// gradient of `alibi_slopes` only. If dsinks is given (float32 [heads]), the gradient of `sinks` is added to it. If
/// dlog_decay is given (float32 [batch, keys, heads], contiguous), the gradient of `log_decay` is added to it; gates of
/// -infinity have none. All are deterministic.
struct AttentionBiasGradients {
  Tensor* dtable = nullptr;
  Tensor* dslopes = nullptr;
  Tensor* dsinks = nullptr;
  Tensor* dlog_decay = nullptr;
};
ALIBI_API void attention_backward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                                  const Tensor& out, const AttentionState& state, const AttentionOptions& options,
                                  Tensor& dq, Tensor& dk, Tensor& dv, AttentionBiasGradients bias_gradients = {});

/// Writes new keys and values [batch, new, kv_heads, head_dim] into the rows from cache_seqlens[b] on of each batch
/// entry of k_cache and v_cache, [batch, rows, kv_heads, head_dim], or with a block table [pages, page rows, kv_heads,
/// head_dim] (AttentionOptions). Throws Error that names the argument, and then writes nothing, if an entry has no
/// room, if two entries would write into one page, or if k or v share memory with the rows that are written.
ALIBI_API void append_keys(const Tensor& k, const Tensor& v, const std::vector<int32_t>& cache_seqlens,
                           const std::optional<Tensor>& block_table, Tensor& k_cache, Tensor& v_cache);

/// Attention over the union of two disjoint sets of keys, from the attention of the same queries over each set (out_a,
/// out_b [batch, queries, heads, head_dim]; lse_a, lse_b [batch, heads, queries], contiguous). Positions refer to the
/// union: for keys that begin at `first`, use the query_offset of the union minus `first`; only one of the two calls
/// may have the sinks. out and lse may be out_a and lse_a, or out_b and lse_b; any other overlap is an error. out_a and
/// out_b may be float32 if out is bfloat16, so that parts are rounded once.
ALIBI_API void merge_attention(const Tensor& out_a, const Tensor& lse_a, const Tensor& out_b, const Tensor& lse_b,
                               Tensor& out, Tensor& lse);

/// The same formula in plain float64, row by row: the reference of the tests. lse may be null. Outputs are [..,
/// contiguous] double vectors shaped like q and [batch, heads, queries].
ALIBI_API void attention_reference(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                   std::vector<double>& out, std::vector<double>* lse = nullptr);

struct AttentionReferenceGradients {
  std::vector<double> dq, dk, dv;  ///< shapes of q, k, v, contiguous
  std::vector<double> dtable;      ///< shape of buckets.table or bias_by_distance, empty without a table
  std::vector<double> dslopes;     ///< shape of `alibi_slopes`, empty without slopes
  std::vector<double> dsinks;      ///< shape of `sinks`
  std::vector<double> dlog_decay;  ///< shape of `log_decay`, contiguous, empty without gates
};
ALIBI_API void attention_backward_reference(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                                            const AttentionOptions& options, AttentionReferenceGradients& gradients);

}  // namespace alibi
