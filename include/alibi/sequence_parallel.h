// Sequence parallelism: attention over one long sequence whose rows are divided over several processes. With ALiBi each
// process needs only the keys near its own rows, which the skip rule finds before any key is sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "alibi/attention.h"
#include "alibi/export.h"
#include "alibi/tensor.h"

namespace alibi {

/// The processes that divide a sequence, and how they exchange messages: by MPI, by sockets, or in any other way.
struct SequenceRanks {
  struct Send {
    int to = 0;
    std::span<const std::byte> data;
  };
  struct Receive {
    int from = 0;
    std::span<std::byte> data;
  };

  int rank = 0;   ///< this process
  int count = 1;  ///< all processes
  /// Sends and receives all messages and returns when their memory can be used again. All ranks call it together. There
  /// is at most one message from a rank to another in a call, and both know its size, which is not 0.
  std::function<void(std::span<const Send> sends, std::span<const Receive> receives)> exchange;
};

/// The contiguous rows of a sequence that a rank has.
struct SequenceShard {
  /// Shards begin at multiples of this number of rows, because the blocks of rows that the kernels compute together
  /// begin there too.
  static constexpr int64_t row_multiple = 192;
  int64_t first = 0, rows = 0;
};

/// Divides a sequence into shards of nearly equal size. A short sequence leaves the last ranks without rows.
ALIBI_API SequenceShard sequence_shard(int64_t length, int rank, int ranks);

/// What the backward pass needs from the forward pass, besides its inputs and output.
struct SequenceAttentionState {
  AttentionState local;  ///< of this rank's queries. Its counts of blocks show the load of the ranks
  /// [ranks][batch * kv_heads]: the first key row and the end of the rows that each rank read.
  std::vector<std::pair<int64_t, int64_t>> keys_read;
};

/// attention() over a sequence of `length` rows, of which q, k, v and out have this rank's shard [batch, shard rows,
/// heads, head_dim]. All ranks call it with the same options. `out` has the bits of one process that has all rows.
///
/// If the skip rule applies (slopes or gates, and a tolerance above 0), the ranks first exchange bounds of the weight
/// of blocks of keys. From these and its own queries each rank finds how far it has to look, and receives only those
/// keys and values. A sliding window limits them too. Otherwise a rank receives all keys that its queries see.
/// log_decay has the gates of this rank's keys; every rank receives those of all keys, 4 bytes for each key and head.
/// Throws Error if an option has no meaning here: query_offset, packed sequences, pages, padding. Only the CPU is
/// supported, and all ranks must compute with the same instruction set.
ALIBI_API void attention_over_ranks(const SequenceRanks& ranks, int64_t length, const Tensor& q, const Tensor& k,
                                    const Tensor& v, const AttentionOptions& options, Tensor& out,
                                    SequenceAttentionState* state = nullptr);

/// Gradients of this rank's rows; all tensors have the shapes of the forward pass. The rank receives the same keys and
/// values again, and sends back its part of the gradients of these and of their gates; parts are added in the order of
/// the ranks. The caller adds the gradients of slopes, tables and sinks of all ranks, as of any other parameter.
ALIBI_API void attention_over_ranks_backward(const SequenceRanks& ranks, int64_t length, const Tensor& dout,
                                             const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                                             const SequenceAttentionState& state, const AttentionOptions& options,
                                             Tensor& dq, Tensor& dk, Tensor& dv,
                                             AttentionBiasGradients bias_gradients = {});

}  // namespace alibi
