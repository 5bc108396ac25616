// Updates the skip-rule bounds of a cache's keys (attention/kernel.h) when keys are added or removed.
#pragma once

#include "attention/cuda/bounds.h"

ALIBI_LANES_BEGIN

/// One thread block for each key/value head of each batch entry. Computes the centre of the head's first keys, one key
/// per thread.
template <Type type>
struct CachedCentres {
  using Arguments = CacheArguments;
  using Of = RowSample<type>;
  static constexpr int threads = Of::threads, blocks_at_once = 8, shared_bytes = Of::shared_bytes;

  static ALIBI_LANE void run(const Arguments& a) {
    const int64_t head = block_index();
    Of::find_centre(rows_of(a.k, block_index() / a.kv_heads, 0, block_index() % a.kv_heads), a.k.row_stride, threads,
                    a.head_dim, a.tree.centres + head * a.head_dim, a.tree.centre_norms + head);
  }
};

/// One thread block for each head and each block of keys that contains new ones. Computes the block's leaf with one
/// thread per key.
template <Type type>
struct MeasureCached {
  using Arguments = CacheArguments;
  static constexpr int threads = block_keys, blocks_at_once = 8;
  static constexpr uint32_t nodes_at = 0;
  static constexpr int shared_bytes = threads * static_cast<int>(sizeof(KeyNode));

  static ALIBI_LANE void run(const Arguments& a) {
    const int first = a.begin / block_keys, blocks = (a.end - 1) / block_keys + 1 - first;
    const int head = block_index() / blocks, block = first + block_index() % blocks;
    const int i = thread_index(), key = block * block_keys + i;
    const float* const centre = a.tree.centres + int64_t{head} * a.head_dim;
    KeyNode own = {0, 0};
    if (key >= a.begin && key < a.end) {
      float squares = 0, distances = 0;
      for_values<type>(rows_of(a.k, head / a.kv_heads, key, head % a.kv_heads), a.head_dim,
                       [&](int column, float value) {
                         const float apart = value - centre[column];
                         squares = fmaf(value, value, squares);
                         distances = fmaf(apart, apart, distances);
                       });
      own = {norm_bound(squares, a.head_dim), norm_bound(distances, a.head_dim)};
    }
    shared_store(nodes_at + static_cast<uint32_t>(i * sizeof(KeyNode)), own);
    block_sync();
    if (i > 0) return;
    KeyNode& leaf = a.tree.level[0][head * a.tree.stride[0] + block];
    KeyNode all = block * block_keys < a.begin ? leaf : KeyNode{0, 0};
    for (int j = 0; j < threads; ++j) {
      const auto other = shared_load<KeyNode>(nodes_at + static_cast<uint32_t>(j * sizeof(KeyNode)));
      all = {fmaxf(all.norm, other.norm), fmaxf(all.radius, other.radius)};
    }
    leaf = all;
  }
};

/// One thread block for each head. Updates the nodes above the changed leaves, level by level.
struct RaiseNodes {
  using Arguments = CacheArguments;
  static constexpr int threads = 128, blocks_at_once = 8, shared_bytes = 0;

  static ALIBI_LANE void run(const Arguments& a) {
    const int64_t head = block_index();
    int first = a.begin / block_keys, last = (a.end - 1) / block_keys;  // nodes of the level below
    for (int level = 1; level < a.tree.levels; ++level) {
      const KeyNode* const below = a.tree.level[level - 1] + head * a.tree.stride[level - 1];
      KeyNode* const nodes = a.tree.level[level] + head * a.tree.stride[level];
      const int end = last + 1;
      first /= node_children;
      last /= node_children;
      for (int node = first + thread_index(); node <= last; node += threads) {
        KeyNode all = {0, 0};
        for (int child = node * node_children; child < (node + 1) * node_children && child < end; ++child) {
          all = {fmaxf(all.norm, below[child].norm), fmaxf(all.radius, below[child].radius)};
        }
        nodes[node] = all;
      }
      block_sync();  // the next level reads these nodes
    }
  }
};

ALIBI_LANES_END
