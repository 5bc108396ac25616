// A call of attention with checked arguments, as plain numbers and pointers. All kernels work on it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "alibi/attention.h"
#include "attention/biases.h"

namespace alibi::kernels {

constexpr int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// Rows or blocks of rows, [begin, end).
struct Range {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
};

/// values[i] of a tensor of float32, bfloat16 or float16.
inline float load_value(DType dtype, const void* values, int64_t i) {
  return dtype == DType::float32   ? static_cast<const float*>(values)[i]
         : dtype == DType::float16 ? static_cast<float>(static_cast<const float16*>(values)[i])
                                   : static_cast<float>(static_cast<const bfloat16*>(values)[i]);
}
inline void store_value(DType dtype, void* values, int64_t i, float value) {
  if (dtype == DType::float32) {
    static_cast<float*>(values)[i] = value;
  } else if (dtype == DType::float16) {
    static_cast<float16*>(values)[i] = float16(value);
  } else {
    static_cast<bfloat16*>(values)[i] = bfloat16(value);
  }
}

/// A [batch, rows, heads, head_dim] tensor. Strides count elements; the innermost stride is 1.
struct TensorView {
  void* data = nullptr;
  int64_t batch_stride = 0;
  int64_t row_stride = 0;
  int64_t head_stride = 0;

  /// The head_dim values of a row.
  template <class T>
  T* at(int64_t batch, int64_t row, int64_t head) const {
    return static_cast<T*>(data) + offset(batch, row, head);
  }
  int64_t offset(int64_t batch, int64_t row, int64_t head) const {
    return batch * batch_stride + row * row_stride + head * head_stride;
  }
};

inline TensorView view_of(const Tensor& tensor) {
  return {tensor.raw(), tensor.stride(0), tensor.stride(1), tensor.stride(2)};
}

/// The queries and keys of a batch entry or of a packed sequence. Query row query_begin + i has position
/// query_offset + i. Key row key_begin + j has position j. With pages, key rows are counted over the pages of the
/// sequence.
struct Sequence {
  int64_t number = 0;  ///< index in Problem::sequences, and of the slopes
  int64_t batch = 0;
  int64_t query_begin = 0, queries = 0;
  int64_t key_begin = 0, keys = 0;
  int64_t query_offset = 0;
  int64_t first_query_drawn = 0, first_key_drawn = 0;  ///< row numbers of the first query and key for dropout: as
                                                       ///< above, unless the tensors have a part of a longer sequence
  const int32_t* pages = nullptr;  ///< the page of each Problem::page_rows key rows; null without a block table
};

/// Where a key row lies in k and v.
struct KeyRow {
  int64_t batch = 0, row = 0;
};

/// A score without its bias: scale q k', or with a softcap above 0, softcap tanh(scale q k' / softcap).
struct ScoreScale {
  float scale = 0, softcap = 0;

  /// The score for x = scale q k'.
  double capped(double x) const {
    const auto cap = static_cast<double>(softcap);
    return softcap > 0 ? cap * std::tanh(x / cap) : x;
  }
};

struct KeyPart;

struct Problem {
  DType dtype = DType::float32;              ///< data type of q, k, v, out and their gradients; not int32
  Device device = Device::cpu;               ///< device of all tensors
  int64_t batch = 0, queries = 0, keys = 0;  ///< number of rows of the tensors
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  TensorView q, k, v, out;
  TensorView dout, dq, dk, dv;  ///< used only in the backward pass
  std::vector<Sequence> sequences;
  Tensor block_table;                  ///< undefined without pages
  int64_t page_rows = 0, k_pages = 0;  ///< rows of a page, and number of pages in k

  float scale = 0, softcap = 0;
  bool causal = true;
  int64_t window_before = 0, window_after = 0;  ///< only keys at -window_after < distance < window_before are seen
  float dropout = 0;
  uint64_t dropout_seed = 0;
  float tolerance = 0;

  std::shared_ptr<const Biases> biases;
  std::vector<float> sinks;              ///< [heads], or empty without sinks
  std::shared_ptr<const Decays> decays;  ///< null without gates, and on a device
  Tensor log_decay;             ///< on a device: the gates, float32 [batch, keys, heads]; undefined without any
  float* dlog_decay = nullptr;  ///< [batch, keys, heads], contiguous; null: not wanted
  /// The points of each sequence, whose tokens are visited in their order; empty: distances are counted.
  std::vector<std::shared_ptr<const Coordinates>> coordinates;

  const KeyPart* part = nullptr;  ///< set if k and v have only a part of the keys (key_part.h)

  int64_t group() const { return heads / kv_heads; }
  ScoreScale score_scale() const { return {scale, softcap}; }
  /// The logit of a head's sink, which is -infinity if it has none.
  float sink(int64_t head) const {
    return sinks.empty() ? -std::numeric_limits<float>::infinity() : sinks[static_cast<size_t>(head)];
  }
  bool has_gates() const { return decays != nullptr || log_decay.defined(); }
  bool has_table() const { return biases->table != nullptr; }
  /// Number of slopes that have a gradient of their own.
  int64_t dslopes_size() const {
    return biases->slopes_per_sequence ? static_cast<int64_t>(sequences.size()) * heads : heads;
  }

  /// The row of a key of a sequence.
  KeyRow key_row(const Sequence& sequence, int64_t key) const {
    const int64_t row = sequence.key_begin + key;
    if (sequence.pages == nullptr) return {sequence.batch, row};
    return {sequence.pages[row / page_rows], row % page_rows};
  }
  /// How many of `count` keys from `key` on are neighbouring rows of one page.
  int64_t keys_together(const Sequence& sequence, int64_t key, int64_t count) const {
    if (sequence.pages == nullptr) return count;
    return std::min(count, page_rows - (sequence.key_begin + key) % page_rows);
  }
  /// Whether each block of `rows` keys lies in one page.
  bool pages_hold_blocks_of(int64_t rows) const {
    return page_rows == 0 || std::all_of(sequences.begin(), sequences.end(), [&](const Sequence& s) {
             return (page_rows % rows == 0 && s.key_begin % rows == 0) || s.key_begin + s.keys <= page_rows;
           });
  }

  const Coordinates* points(const Sequence& sequence) const {
    return coordinates.empty() ? nullptr : coordinates[static_cast<size_t>(sequence.number)].get();
  }
  /// The row of the i-th query of a sequence.
  int64_t query_row(const Sequence& sequence, int64_t i) const {
    const Coordinates* const of = points(sequence);
    return sequence.query_begin + (of != nullptr ? of->queries.rows[static_cast<size_t>(i)] : i);
  }

  HeadBias bias(const Sequence& sequence, int64_t head) const {
    const auto at = static_cast<size_t>(sequence.number * heads + head);
    if (!coordinates.empty()) {
      constexpr double most = 0x1p99;  // penalties of larger slopes would overflow
      return {.form = &biases->of(sequence.number, head),
              .coordinates = {points(sequence), std::min(static_cast<double>(biases->slopes_before[at]), most)}};
    }
    constexpr float closed = std::numeric_limits<float>::infinity();
    return {.form = &biases->of(sequence.number, head),
            .least = causal || biases->slopes_after[at] == closed ? 0 : 1 - window_after,
            .most = biases->slopes_before[at] == closed ? 0 : window_before - 1,
            .decay = decays != nullptr ? decays->head(sequence.number, head) : HeadDecay()};
  }

  /// The keys that at least one of the queries at positions [first, last] of a sequence sees.
  static Range keys_seen(const HeadBias& bias, int64_t first, int64_t last, int64_t keys) {
    const int64_t begin = std::clamp<int64_t>(first - bias.most, bias.decay ? bias.decay.document(first) : 0, keys);
    const int64_t end = std::clamp<int64_t>(last - bias.least + 1, begin, keys);
    return {begin, end};
  }

  /// Distance from a position to the nearest key, or 0 if the position is that of a key. Biases that slide are counted
  /// from the nearest key, so that scores keep their precision at any offset. This shifts the scores of a row by a
  /// constant, which only the log-sum-exp has to add back.
  static int64_t nearest(int64_t position, int64_t keys) {
    return std::max<int64_t>({0, position - (keys - 1), -position});
  }
};

/// Tensors to which a backward pass adds the gradients of the bias; null if the caller does not want them.
struct BiasSums {
  float* dtable = nullptr;   ///< [rows of the table, heads], contiguous
  float* dslopes = nullptr;  ///< [heads], or [sequences * heads] if slopes_per_sequence
  float* dsinks = nullptr;   ///< [heads]
};

/// Returns the table. Throws Error unless it is int32 [sequences, pages], contiguous, in the CPU's memory.
Tensor checked_block_table(const char* operation, const Tensor& table);
/// Throws Error unless the pages of a sequence have `rows` rows and are pages of the cache.
void check_pages(const char* operation, const int32_t* pages, int64_t count, int64_t rows, int64_t page_rows,
                 int64_t all_pages, int64_t sequence);

/// Checks tensors and options. Throws Error that names the argument. Messages begin with `operation`.
Problem make_problem(const char* operation, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                     const AttentionOptions& options);

/// True if the tensors have a byte in common; also true, to be safe, if finding out takes too long.
bool share_memory(const Tensor& a, const Tensor& b);
/// Throws Error if an output has an element in common with another tensor. Interleaved views are accepted, because q, k
/// and v are often parts of one product.
void check_apart(const char* operation, const char* output_name, const Tensor& output, const char* name,
                 const Tensor& tensor);
/// Throws Error if elements of an output share memory, because they could not be written in parallel.
void check_writable(const char* operation, const char* name, const Tensor& tensor);

/// Checks the other arguments of a backward pass and adds them to the problem.
BiasSums add_gradients(const char* operation, Problem& problem, const Tensor& dout, const Tensor& q, const Tensor& k,
                       const Tensor& v, const Tensor& out, const AttentionState& state, Tensor& dq, Tensor& dk,
                       Tensor& dv, const AttentionBiasGradients& bias_gradients);

}  // namespace alibi::kernels
