// Attention with linear biases by the distance of given positions: softmax(q k' * softmax_scale - slope * |x_i - y_j|)
// v, where x_i and y_j are points in 1 to 3 dimensions. Examples: the tiles of a slide or of a satellite image.
#pragma once

#include <cstdint>
#include <vector>

#include "alibi/attention.h"
#include "alibi/export.h"
#include "alibi/tensor.h"

namespace alibi {

/// How the distance of two points is measured. In one dimension both are |x - y|.
enum class Distance : uint8_t {
  euclidean,  ///< the square root of the sum of squared differences
  manhattan,  ///< the sum of the magnitudes of the differences
};

/// Positions of tokens: [batch or 1, length, 1 to 3], float32 or int32, contiguous. A batch of 1 is shared by all
/// entries. Coordinates are finite and at most 2^60 in magnitude. int32 coordinates are counted from the smallest of
/// their axis, and are exact up to 2^24 from it.
struct AttentionPositions {
  Tensor q;       ///< of the queries
  Tensor k = {};  ///< of the keys, with the type and dimensions of q; undefined: those of the queries
};

struct AttentionPositionsOptions {
  std::vector<float> alibi_slopes = {};  ///< [heads] or [sequences * heads], finite and >= 0; empty: no bias
  Distance distance = Distance::euclidean;
  int64_t leading = 0;      ///< the first `leading` tokens of each sequence, such as CLS, have no bias: neither as
                            ///< queries nor as keys. Their positions are not used
  float softmax_scale = 0;  ///< factor of q k'; 0: 1 / sqrt(head_dim)
  float tolerance = 0;      ///< skip rule: keys whose summed weight is provably <= tolerance * the row's sum are not
                            ///< visited (docs/explanation/positions.md); 0: visit every key
  std::vector<int32_t> cu_seqlens_q = {};  ///< packed sequences: row offsets [sequences + 1], batch must be 1
  std::vector<int32_t> cu_seqlens_k = {};
  std::vector<int32_t> seqused_q = {};  ///< [sequences]: only the first rows of each batch entry or packed sequence are
  std::vector<int32_t> seqused_k = {};  ///< tokens, the others are padding; empty: all rows are tokens
};

/// What the backward pass needs from the forward pass, besides its inputs and output. The tensors can be saved and
/// restored as they are.
struct ALIBI_API AttentionPositionsState {
  Tensor lse;      ///< [batch, heads, queries] float32: log of the sum of exp(score); -infinity for rows without keys
  Tensor lse_low;  ///< like lse: what is missing in lse because of rounding, in units of log2. It matters for queries
                   ///< far from every key
  Tensor stops;    ///< [words()] int32: where the skip rule stopped in each block of queries
  AttentionStats stats;

  /// Size of `stops`, which depends on shapes and options only.
  static int64_t words(int64_t batch, int64_t queries, int64_t heads, const AttentionPositionsOptions& options);
};

/// q [batch, queries, heads, head_dim], k and v [batch, keys, kv_heads, head_dim], out like q, as in attention(). Every
/// query sees every key of its batch entry or packed sequence. Padded queries and queries without keys give zeros.
/// Memory beyond the tensors is O(queries + keys): no array of length x length exists. The same bits at any number of
/// threads. Throws Error that names the argument if something does not match.
ALIBI_API void attention_positions(const Tensor& q, const Tensor& k, const Tensor& v,
                                   const AttentionPositions& positions, const AttentionPositionsOptions& options,
                                   Tensor& out, AttentionPositionsState* state = nullptr);

/// The same; returns a new contiguous tensor of the shape of q.
ALIBI_API Tensor attention_positions(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const AttentionPositions& positions, const AttentionPositionsOptions& options = {},
                                     AttentionPositionsState* state = nullptr);

/// Gradients of q, k and v; dq, dk, dv are overwritten. `state` is that of the forward call with the same inputs and
/// options. If dslopes is given (float32, shaped like `alibi_slopes`), the gradient of the slopes is added to it.
/// Positions have no gradient.
ALIBI_API void attention_positions_backward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                                            const Tensor& out, const AttentionPositions& positions,
                                            const AttentionPositionsState& state,
                                            const AttentionPositionsOptions& options, Tensor& dq, Tensor& dk,
                                            Tensor& dv, Tensor* dslopes = nullptr);

/// The same formula in plain float64, row by row: the reference of the tests. lse may be null.
ALIBI_API void attention_positions_reference(const Tensor& q, const Tensor& k, const Tensor& v,
                                             const AttentionPositions& positions,
                                             const AttentionPositionsOptions& options, std::vector<double>& out,
                                             std::vector<double>* lse = nullptr);

/// Its gradients, in float64. dtable stays empty.
ALIBI_API void attention_positions_backward_reference(const Tensor& dout, const Tensor& q, const Tensor& k,
                                                      const Tensor& v, const AttentionPositions& positions,
                                                      const AttentionPositionsOptions& options,
                                                      AttentionReferenceGradients& gradients);

}  // namespace alibi
