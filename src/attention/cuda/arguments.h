// The arguments of the kernels: plain structs that host code and CUDA sources share. All pointers are to device memory.
#pragma once

#include <cstdint>

namespace alibi::kernels::cuda {

enum class Type : int32_t { bfloat16, float16 };

/// Number of keys in a block, which is visited or skipped as a whole.
inline constexpr int block_keys = 64;
/// Number of values of x for which the bounds of the skip rule are stored (attention/skip/weights.h).
inline constexpr int bound_levels = 8;

/// Number of query rows in a tile, which one thread block computes. The state stores the visited key blocks of each
/// tile.
inline constexpr int tile_rows(int64_t head_dim) { return head_dim <= 128 ? 128 : 64; }

/// A [batch, rows, heads, head_dim] tensor of 16-bit values. Strides count elements; the innermost stride is 1.
struct Rows {
  uint16_t* data;
  int64_t batch_stride, row_stride, head_stride;
};

/// The fields of kernels::Sequence, and the first index of the sequence in other arrays.
struct SequenceRows {
  int64_t query_offset;
  int32_t batch, query_begin, queries, key_begin, keys;
  int32_t tiles_before;   ///< tiles of query rows of one head in all earlier sequences
  int32_t bounds_before;  ///< key blocks of one head in all earlier sequences, plus one for each sequence
};

/// slope * log2(e), or 0 in a closed direction.
struct Slopes {
  float before, after;
  int32_t closed_before, closed_after;
};

/// The form of the biases. Each has kernels of its own.
enum class Form : int32_t {
  slopes,  ///< or none
  gates,   ///< forget gates, and slopes too
};

/// A sum of gates: high + low.
struct GateSum {
  double high, low;
};

/// The forget gates of a block of keys of a head, to base 2 (gates.h). A gate of -infinity counts as 0 in sums and
/// begins a document.
struct alignas(16) GateBlock {
  GateSum before;    ///< over all earlier keys
  int32_t document;  ///< first key of the document of the key before the block
  int32_t unused[3];
  float to_end[block_keys];                                  ///< over the later keys of the block
  float from_start[block_keys], from_start_low[block_keys];  ///< their sum: over the keys of the block up to each
  int32_t documents[block_keys];  ///< first key of the key's document, or -1 if that begins before the block
};

/// An entry of the order in which heads are computed, by decreasing work. Heads with about equal work form a class: the
/// entries [begin, begin + size).
struct HeadRank {
  int32_t head, begin, size;
};

/// The combined gradient kernel computes 128 keys and 64 or 128 query rows at a time. 128 rows need fewer loads and
/// barriers, but more shared memory and, with more than 64 columns, too many registers.
inline constexpr int both_keys = 128;
inline constexpr int both_shared_bytes(int columns, int both_rows) {
  constexpr int value = 2, stages = 2, terms = 8, known = 64 + 2 * 64;
  return value * (2 * both_keys * columns + stages * 2 * both_rows * columns + 2 * both_rows * both_keys) +
         stages * both_rows * terms + known;
}

/// Number of query rows for a GPU with so much shared memory, or 0 if it has too little for the combined kernel.
inline constexpr int both_rows_for(int columns, int shared_bytes) {
  if (columns <= 64 && both_shared_bytes(columns, 128) <= shared_bytes) return 128;
  return columns <= 128 && both_shared_bytes(columns, 64) <= shared_bytes ? 64 : 0;
}

/// The arguments of all kernels of a call.
struct Call {
  Rows q, k, v;
  const SequenceRows* sequences;
  const Slopes* slopes;           ///< [heads], or [batch][heads]
  const float* sinks;             ///< [heads]: to base 2, -infinity for a head without one; null if there are none
  const GateBlock* gates;         ///< with the entries of Bounds; null without gates
  const HeadRank* head_order;     ///< [heads]
  const HeadRank* kv_head_order;  ///< [kv_heads]
  int64_t queries;                ///< rows of the tensor
  int64_t window;                 ///< 0 for no window
  int32_t heads, kv_heads, head_dim, tile_rows;
  int32_t slopes_stride;  ///< elements between batch entries: heads, or 0 if all share the slopes
  int32_t sequence_count;
  int32_t uniform;  ///< whether all sequences have the same numbers of queries and keys
  int32_t tiles, key_units,
      both_units;  ///< totals over all sequences for one head: query tiles, and key blocks counted as in bounds_before
  int32_t causal;
  float scale;           ///< scale of q k'
  float scale2;          ///< scale * log2(e)
  int32_t gate_entries;  ///< of a cache: entries of `gates` for each head of each batch entry; 0 without a cache
};

struct GateArguments {
  Call call;
  const float* log_decay;  ///< [batch][keys][heads]
  int64_t batch_stride, key_stride, head_stride;
  GateBlock* blocks;
  int32_t first_block;  ///< the blocks before this one are summed already
};

/// Bounds of the weight of the keys before a block, or from the block on: base-2 logarithms for queries with x =
/// levels.
struct KeyBound {
  float weights[bound_levels];
  float radius;  ///< upper bound of |k - centre|
  float norm;    ///< upper bound of |k| + |centre|
  float unused[2];
};

/// The tables of the skip rule. A head has an entry for each of its blocks and one more, from first_entry() on.
struct Bounds {
  KeyBound *before, *from;  ///< `from` is null for causal attention
  float* centres;           ///< [sequences][kv_heads][head_dim]
  float* centre_norms;      ///< [sequences][kv_heads]
  float* lengths;           ///< [sequences][heads]: x of a typical query
};

/// Arguments of the three kernels that fill the tables. Each kernel has its own kind of task.
struct BoundsArguments {
  Call call;
  Bounds bounds;
};

struct ForwardArguments {
  Call call;
  Rows out;
  float *lse, *lse_from_nearest;      ///< [batch][heads][queries]; null if the caller does not want them
  int32_t *first_block, *last_block;  ///< for each tile: visited key blocks; null if not wanted
  int32_t* seen;                      ///< for each tile: number of key blocks that are seen; null if not wanted
  Bounds bounds;
  float budget;  ///< budget of each direction (skip_budget()); 0 if the rule does not apply
};

/// Values of a query row that the backward pass needs.
struct RowTerms {
  float lse2;   ///< log2 of the row's sum; +infinity if the row sees no key
  float delta;  ///< dout out'
};

/// For a head of a sequence, the query tiles that may visit a block of keys. If t is the tile whose rows include the
/// row number of the block's first key, these are the tiles [t + first, t + last].
struct VisitingTiles {
  int32_t first, last;
};

/// Number of column parts into which the gradients of a block of keys are divided.
inline constexpr int key_parts(int64_t head_dim) { return head_dim <= 128 ? 1 : 2; }

struct BackwardArguments {
  Call call;
  Rows out, dout, dq, dk, dv;
  const float* lse_from_nearest;
  RowTerms* terms;                          ///< [batch][heads][queries]
  const int32_t *first_block, *last_block;  ///< for each tile; null if the tile visits every block that it sees
  double* slope_sums;                       ///< gradient of the slope for each tile; null if not wanted
  float* dslopes;                           ///< the kernel adds to it
  float* dsinks;                            ///< the kernel adds to it; null if not wanted
  VisitingTiles* visiting;                  ///< [sequences][heads]
  // For the gradient of gates; null if it is not wanted.
  float* row_sums;    ///< [batch][heads][queries]: the sum of each row of ds
  float* key_sums;    ///< [batch][heads][keys]: of each column
  float* dlog_decay;  ///< [batch][keys][heads]: the kernel adds to it
  int64_t keys;       ///< rows of the tensor
  // For the combined gradient kernel; null if it is not used.
  float* dq_sums;     ///< [tiles][tile_rows / both_rows][both_rows * columns]
  int32_t* counters;  ///< [tiles][tile_rows / both_rows]: number of blocks that have added their part
  int32_t* ticket;    ///< number of the next task
  int32_t both_rows;  ///< query rows that the kernel computes at a time
  int64_t rows;       ///< batch * heads * queries
  int32_t slopes_per_batch, slopes_symmetric;
};

/// Upper bounds of |k| and |k - centre| over a range of a cache's keys.
struct KeyNode {
  float norm, radius;
};

/// A tree of maxima for each key/value head of each batch entry. The nodes of level 0 cover blocks of keys. A node of a
/// higher level is the maximum of 16 nodes of the level below (attention/kernel.h).
inline constexpr int node_children = 16, max_levels = 8;
struct KeyTree {
  KeyNode* level[max_levels];     ///< [batch * kv_heads][stride]
  int64_t stride[max_levels];     ///< number of nodes that are allocated
  int32_t levels;                 ///< number of levels that the keys need; the last one has one node
  float *centres, *centre_norms;  ///< [batch * kv_heads][head_dim]; [batch * kv_heads]
};

/// Keys [begin, end) of a cache that are new to the tree.
struct CacheArguments {
  Rows k;
  KeyTree tree;
  int32_t kv_heads, head_dim, begin, end;
};

/// Rows per tile in cached decoding: queries of heads that read the same keys.
inline constexpr int decode_rows = 16;

/// Key blocks [begin, end) that a tile visits. It visits [near_begin, near_end) first.
struct DecodeLimits {
  int32_t begin, near_begin, near_end, end;
};

/// Attention of a row over some of its keys. Exponents are to base 2.
struct PartialRow {
  float max, sum;
};

struct DecodeArguments {
  Call call;
  Rows out;
  KeyTree tree;
  DecodeLimits* limits;           ///< [batch * kv_heads][tiles]; null if the skip rule does not apply
  PartialRow* partials;           ///< [batch][heads][queries][slots]: first the near keys, then each split
  float* partial_out;             ///< the partial outputs, with the dimensions of partials and [head_dim]
  float *lse, *lse_from_nearest;  ///< see ForwardArguments
  int32_t tiles;                  ///< tiles of a key/value head
  int32_t splits, slots;          ///< slots is splits + 1 if there are limits, otherwise splits
  int32_t blocks_of_split;        ///< key blocks per split
  float budget;                   ///< see ForwardArguments
};

struct alignas(16) Chunk {
  uint32_t x[4];
};

struct StoreArguments {
  static constexpr int max_chunks = 240;  ///< kernel arguments are limited to 4 KB
  Chunk* to;
  int32_t count;
  Chunk chunks[max_chunks];
};

/// The kernel launches of the passes, for one form of biases. Each returns a cudaError_t. Those that the form does not
/// have are null.
struct Launches {
  int (*store)(const StoreArguments&, void* stream);
  int (*sum_gates)(const GateArguments&, int64_t units, Type type, void* stream);
  int (*sum_gate_blocks)(const GateArguments&, int64_t heads, Type type, void* stream);
  int (*centres)(const BoundsArguments&, int64_t kv_heads, Type type, void* stream);
  int (*measure)(const BoundsArguments&, int64_t units, Type type, void* stream);
  int (*accumulate)(const BoundsArguments&, int64_t heads, Type type, void* stream);
  int (*forward)(const ForwardArguments&, int64_t tasks, Type type, void* stream);
  int (*row_terms)(const BackwardArguments&, int64_t rows, Type type, void* stream);
  int (*add_sinks)(const BackwardArguments&, int64_t heads, Type type, void* stream);
  int (*visiting_tiles)(const BackwardArguments&, int64_t heads, Type type, void* stream);
  int (*query_gradients)(const BackwardArguments&, int64_t tasks, Type type, void* stream);
  int (*both_gradients)(const BackwardArguments&, int64_t units, Type type, void* stream);
  int (*key_gradients)(const BackwardArguments&, int64_t tasks, Type type, void* stream);
  int (*add_slopes)(const BackwardArguments&, int64_t slopes, Type type, void* stream);
  int (*add_gates)(const BackwardArguments&, int64_t heads, Type type, void* stream);
  int (*cached_centres)(const CacheArguments&, int64_t kv_heads, Type type, void* stream);
  int (*measure_cached)(const CacheArguments&, int64_t blocks, Type type, void* stream);
  int (*raise_nodes)(const CacheArguments&, int64_t kv_heads, Type type, void* stream);
  int (*decode_near)(const DecodeArguments&, int64_t tiles, Type type, void* stream);
  int (*decode_splits)(const DecodeArguments&, int64_t splits, Type type, void* stream);
  int (*decode_merge)(const DecodeArguments&, int64_t rows, Type type, void* stream);
};

/// The launches of the kernels that are compiled for GPUs (launches.cu).
const Launches& gpu_launches(Form form);

}  // namespace alibi::kernels::cuda
