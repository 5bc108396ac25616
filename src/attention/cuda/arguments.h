// The arguments of the kernels: plain structs that host code and CUDA sources share. All pointers are to device memory.
#pragma once

#include <cstdint>

namespace alibi::kernels::cuda {

enum class Type : int32_t { bfloat16, float16 };

/// Number of keys in a block, which is visited or skipped as a whole.
inline constexpr int block_keys = 64;
/// Number of values of x for which the bounds of the skip rule are kept (attention/skip_weights.h).
inline constexpr int bound_levels = 8;

/// Query rows of a tile, which one block of threads computes. The state has the visits of each tile.
inline constexpr int tile_rows(int64_t head_dim) { return head_dim <= 128 ? 128 : 64; }

/// A [batch, rows, heads, head_dim] tensor of 16-bit values; strides count elements, the innermost is 1.
struct Rows {
  uint16_t* data;
  int64_t batch_stride, row_stride, head_stride;
};

/// kernels::Sequence, and where its parts of other arrays begin.
struct SequenceRows {
  int64_t query_offset;
  int32_t batch, query_begin, queries, key_begin, keys;
  int32_t tiles_before;   ///< tiles of query rows of all sequences before it, of one head
  int32_t bounds_before;  ///< the same for key blocks, with one more for each sequence
};

/// slope * log2(e); 0 for a closed direction, in which no key is seen.
struct Slopes {
  float before, after;
  int32_t closed_before, closed_after;
};

/// An entry of the order in which heads are computed, by decreasing work. Heads of about equal work are a class, the
/// entries [begin, begin + size).
struct HeadRank {
  int32_t head, begin, size;
};

/// Query rows and keys that the kernel of all gradients computes at a time, and the shared memory that it needs.
inline constexpr int both_rows = 64, both_keys = 128;
inline constexpr int both_shared_bytes(int columns) {
  constexpr int value = 2, stages = 2, terms = 8, known = 64 + 2 * 44;
  return value * (2 * both_keys * columns + stages * 2 * both_rows * columns + 2 * both_rows * both_keys) +
         stages * both_rows * terms + known;
}

/// The arguments of all kernels of a call.
struct Call {
  Rows q, k, v;
  const SequenceRows* sequences;
  const Slopes* slopes;           ///< [heads], or [batch][heads]
  const HeadRank* head_order;     ///< [heads]
  const HeadRank* kv_head_order;  ///< [kv_heads]
  int64_t queries;                ///< rows of the tensor
  int64_t window;                 ///< 0: none
  int32_t heads, kv_heads, head_dim, tile_rows;
  int32_t slopes_stride;  ///< from batch entry to batch entry: heads, or 0
  int32_t sequence_count;
  int32_t uniform;  ///< whether all sequences have the same numbers of queries and keys
  int32_t tiles, key_units,
      both_units;  ///< of all sequences, of one head: tiles of queries; as bounds_before counts blocks
  int32_t causal;
  float scale;   ///< of q k'
  float scale2;  ///< the same times log2(e)
};

/// Bounds on the weight of the keys before a block, or from it on: logarithms to base 2 for queries of x = levels.
struct KeyBound {
  float weights[bound_levels];
  float radius;  ///< upper bound of |k - centre|
  float norm;    ///< upper bound of |k| + |centre|
  float unused[2];
};

/// The tables of the skip rule. The entries of a head begin at heads * bounds_before + head * (its blocks + 1).
struct Bounds {
  KeyBound *before, *from;  ///< from: null if causal
  float* centres;           ///< [sequences][kv_heads][head_dim]
  float* centre_norms;      ///< [sequences][kv_heads]
  float* lengths;           ///< [sequences][heads]: x of a typical query
};

/// Arguments of the three kernels that fill the tables, each with its own kind of task.
struct BoundsArguments {
  Call call;
  Bounds bounds;
};

struct ForwardArguments {
  Call call;
  Rows out;
  float *lse, *near_lse;                     ///< [batch][heads][queries]; null: not wanted
  int32_t *first_block, *last_block, *seen;  ///< of each tile: key blocks visited, how many are seen; null: not wanted
  Bounds bounds;
  float budget;  ///< of each direction (skip_budget()); 0: the rule does not apply
};

/// What the backward pass needs for a query row.
struct RowTerms {
  float lse2;   ///< log2 of its sum; +infinity if it sees no key
  float delta;  ///< dout out'
};

/// For a head of a sequence: the query tiles that may visit a block of keys. If the first key of the block were a query
/// row and in tile t, these are the tiles [t + first, t + last].
struct VisitingTiles {
  int32_t first, last;
};

/// Number of parts into which the gradients of a block of keys are divided.
inline constexpr int key_parts(int64_t head_dim) { return head_dim <= 128 ? 1 : 2; }

struct BackwardArguments {
  Call call;
  Rows out, dout, dq, dk, dv;
  const float* near_lse;
  RowTerms* terms;                          ///< [batch][heads][queries]
  const int32_t *first_block, *last_block;  ///< of each tile; null: every block that is seen
  double* slope_sums;                       ///< of each tile: the gradient of its slope; null: not wanted
  float* dslopes;                           ///< is added to
  VisitingTiles* visiting;                  ///< [sequences][heads]
  // Of the kernel of all gradients; null where it is not used.
  float* dq_sums;     ///< [tiles][tile_rows / both_rows][both_rows * columns]
  int32_t* counters;  ///< [tiles][tile_rows / both_rows]: how many blocks have added their part
  int32_t* ticket;    ///< the next task
  int64_t rows;       ///< batch * heads * queries
  int32_t slopes_per_batch, slopes_symmetric;
};

/// Upper bounds of |k| and |k - centre| over a range of a cache's keys.
struct KeyNode {
  float norm, radius;
};

/// A tree of maxima for each key/value head of each batch entry. Level 0 is over blocks of keys. A node of another
/// level is the maximum of 16 nodes of the level below (attention/kernel.h).
inline constexpr int node_children = 16, most_levels = 8;
struct KeyTree {
  KeyNode* level[most_levels];    ///< [batch * kv_heads][stride]
  int64_t stride[most_levels];    ///< number of nodes that there is room for
  int32_t levels;                 ///< as many as the keys need: the last has one node
  float *centres, *centre_norms;  ///< [batch * kv_heads][head_dim]; [batch * kv_heads]
};

/// Keys [begin, end) of a cache, which are new to the tree.
struct CacheArguments {
  Rows k;
  KeyTree tree;
  int32_t kv_heads, head_dim, begin, end;
};

/// Rows of a tile of cached decoding: queries of heads that read the same keys.
inline constexpr int decode_rows = 16;

/// Key blocks [begin, end) that a tile visits; it visits [near_begin, near_end) first.
struct DecodeLimits {
  int32_t begin, near_begin, near_end, end;
};

/// Attention of a row over some of its keys, in powers of two.
struct PartialRow {
  float max, sum;
};

struct DecodeArguments {
  Call call;
  Rows out;
  KeyTree tree;
  DecodeLimits* limits;     ///< [batch * kv_heads][tiles]; null: the skip rule does not apply
  PartialRow* partials;     ///< [batch][heads][queries][slots]: the near keys first, then each split
  float* partial_out;       ///< the same, times [head_dim]
  float *lse, *near_lse;    ///< as of ForwardArguments
  int32_t tiles;            ///< of a key/value head
  int32_t splits, slots;    ///< slots: one more than splits if there are limits
  int32_t blocks_of_split;  ///< of keys
  float budget;             ///< as of ForwardArguments
};

struct alignas(16) Chunk {
  uint32_t x[4];
};

struct StoreArguments {
  static constexpr int most_chunks = 240;  ///< kernels take 4 KB of arguments
  Chunk* to;
  int32_t count;
  Chunk chunks[most_chunks];
};

/// The launches of a pass; each gives a cudaError_t.
struct Launches {
  int (*store)(const StoreArguments&, void* stream);
  int (*centres)(const BoundsArguments&, int64_t kv_heads, Type type, void* stream);
  int (*measure)(const BoundsArguments&, int64_t units, Type type, void* stream);
  int (*accumulate)(const BoundsArguments&, int64_t heads, Type type, void* stream);
  int (*forward)(const ForwardArguments&, int64_t tasks, Type type, void* stream);
  int (*row_terms)(const BackwardArguments&, int64_t rows, Type type, void* stream);
  int (*visiting_tiles)(const BackwardArguments&, int64_t heads, Type type, void* stream);
  int (*query_gradients)(const BackwardArguments&, int64_t tasks, Type type, void* stream);
  int (*both_gradients)(const BackwardArguments&, int64_t units, Type type, void* stream);
  int (*key_gradients)(const BackwardArguments&, int64_t tasks, Type type, void* stream);
  int (*add_slopes)(const BackwardArguments&, int64_t slopes, Type type, void* stream);
  int (*cached_centres)(const CacheArguments&, int64_t kv_heads, Type type, void* stream);
  int (*measure_cached)(const CacheArguments&, int64_t blocks, Type type, void* stream);
  int (*raise_nodes)(const CacheArguments&, int64_t kv_heads, Type type, void* stream);
  int (*decode_near)(const DecodeArguments&, int64_t tiles, Type type, void* stream);
  int (*decode_splits)(const DecodeArguments&, int64_t splits, Type type, void* stream);
  int (*decode_merge)(const DecodeArguments&, int64_t rows, Type type, void* stream);
};

/// Those of the kernels that are compiled for GPUs (launches.cu).
const Launches& gpu_launches();

}  // namespace alibi::kernels::cuda
