/* The C interface: attention forward, backward and cached decoding on plain memory, the CPU's or (attention in builds
 * with ALIBI_CUDA) a GPU's. C11 and C++.
 *
 * Every function that can fail returns a status and stores a message for alibi_last_error(), which names the argument
 * and shows what was found and what was expected. Functions throw no exceptions and do not change errno. attention.h
 * and kv_cache.h describe what the operations compute. */
#ifndef ALIBI_C_H_
#define ALIBI_C_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "alibi/export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum alibi_status {
  ALIBI_OK = 0,
  ALIBI_ERROR = 1,         /* an argument or the state of an object is invalid; nothing was computed */
  ALIBI_OUT_OF_MEMORY = 2, /* nothing was computed */
  ALIBI_INTERNAL = 3       /* an internal error */
} alibi_status;

typedef enum alibi_dtype {
  ALIBI_FLOAT32 = 0,  /* float */
  ALIBI_BFLOAT16 = 1, /* uint16_t, the upper half of a float */
  ALIBI_FLOAT16 = 2,  /* uint16_t, IEEE half precision; on GPUs only */
  ALIBI_Q8_0 = 3      /* of a key/value cache only: 8 bits and a scale per 32 numbers */
} alibi_dtype;

typedef enum alibi_device {
  ALIBI_DEVICE_CPU = 0,
  ALIBI_DEVICE_CUDA = 1 /* the current NVIDIA GPU (cudaSetDevice), see docs/how-to/gpu.md */
} alibi_device;

/* A block of the caller's memory, [batch, length, heads, head_dim]. Outputs are passed by a const pointer too, because
 * the memory changes and not its description. */
typedef struct alibi_tensor {
  void* data;
  int32_t dtype;      /* an alibi_dtype */
  int64_t shape[4];   /* batch, length, heads, head_dim */
  int64_t strides[4]; /* in elements, the last one 1; all four 0: contiguous */
} alibi_tensor;

/* query_offset for queries that are the last rows. */
#define ALIBI_LAST_ROWS INT64_MIN

/* Start from alibi_attention_options_default(). New versions add fields only at the end, and `size` tells which fields
 * the caller knows; the others have their defaults. A null pointer to options means the defaults. */
typedef struct alibi_attention_options {
  size_t size;                     /* sizeof(alibi_attention_options) */
  const float* alibi_slopes;       /* ALiBi; null: none */
  size_t alibi_slopes_count;       /* heads, or batch * heads; of packed sequences sequences * heads */
  const float* alibi_slopes_after; /* bidirectional: slopes of keys after the query; null: `alibi_slopes` */
  size_t alibi_slopes_after_count;
  const float* buckets; /* T5 bias [num_buckets, heads], contiguous; null: none */
  int64_t num_buckets;
  int64_t max_distance;        /* of the T5 bias; 0: 128 */
  int64_t query_offset;        /* position of the first query; ALIBI_LAST_ROWS (the default): keys - queries */
  int64_t sliding_window;      /* > 0: only keys at |distance| < sliding_window are visible */
  const int32_t* cu_seqlens_q; /* packed sequences: row offsets, sequences + 1; null: none */
  size_t cu_seqlens_q_count;
  const int32_t* cu_seqlens_k;
  size_t cu_seqlens_k_count;
  uint64_t dropout_seed;
  float dropout_p;
  float softmax_scale;   /* 0: 1 / sqrt(head_dim) */
  float tolerance;       /* of the skip rule; 0: every key is visited */
  int32_t bidirectional; /* 0: causal */
  int32_t device;        /* an alibi_device: where the data of all tensors of the call, log_decay and the gradients lie.
                          * All else, slopes, sinks and offsets too, is memory of the CPU */
  void* stream;          /* cudaStream_t in which the work is queued; null: the default stream. The call may return
                          * before the work is done. A state must be destroyed before the stream of its last call */
  int64_t
      sliding_window_after; /* bidirectional: the window for keys after the query; 0: sliding_window, -1: no limit */
  float softcap;    /* > 0: a score is softcap * tanh(softmax_scale * q k' / softcap) plus its bias; 0: no cap */
  int32_t reserved; /* 0 */
  const int32_t* block_table; /* keys in pages [sequences, block_table_pages]: k and v are [pages, page rows, kv_heads,
                               * head_dim], and row i of a sequence is row i % page rows of page
                               * block_table[sequence][i / page rows]; null: none. No gradients */
  int64_t block_table_pages;
  const int32_t* seqused_k; /* rows of k that each batch entry uses; null: all. Needed with block_table unless queries
                             * are packed */
  size_t seqused_k_count;
  const int32_t* leftpad_k; /* of these rows, the number before the first key; null: 0 */
  size_t leftpad_k_count;
  const float* sinks; /* a logit for each head that joins the softmax without a value, -infinity: none; null: none */
  size_t sinks_count;
  const float* log_decay; /* forget gates: log f_t <= 0 of each key and query head, contiguous [batch, keys, heads] or
                           * [pages, page rows, heads], on the device; -infinity begins a document; null: none */
  size_t log_decay_count;
} alibi_attention_options;

static inline alibi_attention_options alibi_attention_options_default(void) {
  alibi_attention_options options;
  memset(&options, 0, sizeof options);
  options.size = sizeof options;
  options.query_offset = ALIBI_LAST_ROWS;
  return options;
}

/* "0.1.0" */
ALIBI_API const char* alibi_version(void);
/* Message of this thread's last call that failed; "" if none has failed. Valid until the next failure. */
ALIBI_API const char* alibi_last_error(void);
/* Sets the number of threads; do not call it while another thread computes. */
ALIBI_API alibi_status alibi_set_threads(int32_t count);

/* The slopes of `heads` heads; bias_max is 8 in the paper. */
ALIBI_API alibi_status alibi_slopes(int32_t heads, double bias_max, float* slopes);

/* What a forward call stores for the backward pass, and its counts. */
typedef struct alibi_attention_state alibi_attention_state;
ALIBI_API alibi_status alibi_attention_state_create(alibi_attention_state** state);
ALIBI_API void alibi_attention_state_destroy(alibi_attention_state* state);
/* Copies the log-sum-exps [batch, heads, queries] to memory of the CPU; count is their number. Copying from a state of
 * a GPU waits for the stream of the forward call. */
ALIBI_API alibi_status alibi_attention_state_lse(const alibi_attention_state* state, float* lse, size_t count);
/* Numbers of visited blocks of keys, and of all blocks. */
ALIBI_API alibi_status alibi_attention_state_blocks(const alibi_attention_state* state, int64_t* visited,
                                                    int64_t* total);

/* The state as plain arrays, for frameworks that store arrays between the passes. alibi_attention_state_words() is
 * known before the forward call; lse and kernel_lse are [batch, heads, queries] (lse_count numbers each), blocks has
 * `words` numbers. A restored state has no counts of blocks. */
ALIBI_API alibi_status alibi_attention_state_words(const alibi_tensor* q, const alibi_attention_options* options,
                                                   size_t* words);
ALIBI_API alibi_status alibi_attention_state_save(const alibi_attention_state* state, float* lse, float* kernel_lse,
                                                  size_t lse_count, int32_t* blocks, size_t words);
ALIBI_API alibi_status alibi_attention_state_restore(alibi_attention_state* state, const alibi_tensor* q,
                                                     const float* lse, const float* kernel_lse, const int32_t* blocks,
                                                     size_t words);

/* q and out [batch, queries, heads, head_dim], k and v [batch, keys, kv_heads, head_dim]. options and state may be
 * null. */
ALIBI_API alibi_status alibi_attention(const alibi_tensor* q, const alibi_tensor* k, const alibi_tensor* v,
                                       const alibi_attention_options* options, const alibi_tensor* out,
                                       alibi_attention_state* state);

/* state is that of alibi_attention with the same inputs and options. dq, dk and dv are overwritten. dbuckets
 * [num_buckets, heads], dslopes [alibi_slopes_count], dsinks [heads] and dlog_decay [log_decay_count] are
 * added to; each may be null. */
ALIBI_API alibi_status alibi_attention_backward(const alibi_tensor* dout, const alibi_tensor* q, const alibi_tensor* k,
                                                const alibi_tensor* v, const alibi_tensor* out,
                                                const alibi_attention_state* state,
                                                const alibi_attention_options* options, const alibi_tensor* dq,
                                                const alibi_tensor* dk, const alibi_tensor* dv, float* dbuckets,
                                                float* dslopes, float* dsinks, float* dlog_decay);

/* Writes new keys and values k and v [batch, new, kv_heads, head_dim] into the rows from cache_seqlens[b] on of each
 * batch entry of k_cache and v_cache: [batch, rows, kv_heads, head_dim], or with a block_table (as in
 * alibi_attention_options; null: none) [pages, page rows, kv_heads, head_dim]. On the CPU. */
ALIBI_API alibi_status alibi_append_keys(const alibi_tensor* k, const alibi_tensor* v, const int32_t* cache_seqlens,
                                         size_t cache_seqlens_count, const int32_t* block_table,
                                         int64_t block_table_pages, const alibi_tensor* k_cache,
                                         const alibi_tensor* v_cache);

/* Attention over the union of two disjoint sets of keys. lse_a, lse_b and lse are [batch, heads, queries], contiguous;
 * out and lse may be inputs. */
ALIBI_API alibi_status alibi_attention_merge(const alibi_tensor* out_a, const float* lse_a, const alibi_tensor* out_b,
                                             const float* lse_b, const alibi_tensor* out, float* lse);

typedef enum alibi_distance {
  ALIBI_EUCLIDEAN = 0,
  ALIBI_MANHATTAN = 1 /* the sum of the magnitudes of the differences */
} alibi_distance;

/* Positions of tokens, for attention whose distances are given. attention_positions.h describes the fields. Start from
 * alibi_positions_default(); `size` is as in alibi_attention_options. */
typedef struct alibi_positions {
  size_t size;              /* sizeof(alibi_positions) */
  const void* q;            /* [q_batch, queries, dims] contiguous; q_batch is the batch, or 1 for all entries */
  const void* k;            /* [k_batch, keys, dims]; null: those of the queries */
  int64_t q_batch, k_batch; /* k_batch is not used if k is null */
  int64_t dims;             /* 1 to 3 */
  int64_t leading;          /* the first tokens of each sequence, such as CLS, have no bias */
  const int32_t* seqused_q; /* numbers of tokens of each batch entry or packed sequence; null: all rows are tokens */
  size_t seqused_q_count;
  const int32_t* seqused_k;
  size_t seqused_k_count;
  int32_t integers; /* 0: float; 1: int32_t */
  int32_t distance; /* an alibi_distance */
} alibi_positions;

static inline alibi_positions alibi_positions_default(void) {
  alibi_positions positions;
  memset(&positions, 0, sizeof positions);
  positions.size = sizeof positions;
  positions.q_batch = positions.k_batch = 1;
  positions.dims = 2;
  return positions;
}

/* Attention with a bias of -slope * distance of positions. Every query sees every key of its sequence. Of the options
 * alibi_slopes, softmax_scale, tolerance and cu_seqlens are used; the others must have their defaults. options and
 * state may be null. Such a state can be read, but not saved as arrays. */
ALIBI_API alibi_status alibi_attention_positions(const alibi_tensor* q, const alibi_tensor* k, const alibi_tensor* v,
                                                 const alibi_positions* positions,
                                                 const alibi_attention_options* options, const alibi_tensor* out,
                                                 alibi_attention_state* state);
/* As alibi_attention_backward. */
ALIBI_API alibi_status alibi_attention_positions_backward(const alibi_tensor* dout, const alibi_tensor* q,
                                                          const alibi_tensor* k, const alibi_tensor* v,
                                                          const alibi_tensor* out, const alibi_positions* positions,
                                                          const alibi_attention_state* state,
                                                          const alibi_attention_options* options,
                                                          const alibi_tensor* dq, const alibi_tensor* dk,
                                                          const alibi_tensor* dv, float* dslopes);

/* The keys and values of past tokens of one layer; grows as needed. */
typedef struct alibi_kv_cache alibi_kv_cache;
ALIBI_API alibi_status alibi_kv_cache_create(int64_t batch, int64_t kv_heads, int64_t head_dim, int32_t dtype,
                                             alibi_kv_cache** cache);
/* Creates a cache on a device (enum alibi_device); with ALIBI_DEVICE_CUDA in bfloat16 or float16. Keys, values and
 * queries are on that device too. `stream` is the cudaStream_t in which keys are appended and memory is allocated and
 * freed; it must outlive the cache; null: CUDA's default stream. If you decode in another stream, you have to order the
 * two. */
ALIBI_API alibi_status alibi_kv_cache_create_on(int64_t batch, int64_t kv_heads, int64_t head_dim, int32_t dtype,
                                                int32_t device, void* stream, alibi_kv_cache** cache);
ALIBI_API void alibi_kv_cache_destroy(alibi_kv_cache* cache);
/* k and v [batch, new, kv_heads, head_dim], on the device of the cache. */
ALIBI_API alibi_status alibi_kv_cache_append(alibi_kv_cache* cache, const alibi_tensor* k, const alibi_tensor* v);
/* The same with the gates of these keys, contiguous [batch, new, query heads], on the cache's device (log_decay in
 * alibi_attention_options): for all keys of a cache or for none. */
ALIBI_API alibi_status alibi_kv_cache_append_gated(alibi_kv_cache* cache, const alibi_tensor* k, const alibi_tensor* v,
                                                   const float* log_decay, size_t log_decay_count);
/* Removes all but the first `length` keys. */
ALIBI_API alibi_status alibi_kv_cache_truncate(alibi_kv_cache* cache, int64_t length);
/* Number of keys; -1 if cache is null. */
ALIBI_API int64_t alibi_kv_cache_length(const alibi_kv_cache* cache);
/* Attention of a few queries over a cache. options.device must be the device of the cache. options and state may be
 * null. */
ALIBI_API alibi_status alibi_attention_decode(const alibi_tensor* q, const alibi_kv_cache* cache,
                                              const alibi_attention_options* options, const alibi_tensor* out,
                                              alibi_attention_state* state);

#ifdef __cplusplus
}
#endif

#endif
