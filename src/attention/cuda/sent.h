// What the host makes known to the kernels: arrays and memory of the device, and the call in their terms.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numbers>
#include <vector>

#include "attention/cuda/passes.h"
#include "attention/skip_weights.h"
#include "core/parallel.h"

namespace alibi::kernels::cuda {

/// Arrays that go to the device in one piece.
class Sent {
 public:
  /// Keeps the place of the values until send().
  template <class T>
  size_t add(const std::vector<T>& values) {
    constexpr size_t alignment = 16;
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    const size_t at = bytes_.size();
    bytes_.resize(at + values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size() * sizeof(T));
    return at;
  }
  void send(const Machine& machine) {
    memory_ = machine.workspace(bytes_.size());
    machine.copy_to_device(memory_.get(), bytes_.data(), bytes_.size());
  }
  template <class T>
  const T* at(size_t place) const {
    return reinterpret_cast<const T*>(static_cast<const std::byte*>(memory_.get()) + place);
  }

 private:
  std::vector<std::byte> bytes_;
  std::shared_ptr<void> memory_;
};

/// Memory for an array that kernels write.
template <class T>
class Made {
 public:
  Made(const Machine& machine, int64_t size) {
    if (size > 0) memory_ = machine.workspace(static_cast<size_t>(size) * sizeof(T));
  }
  T* get() const { return static_cast<T*>(memory_.get()); }

 private:
  std::shared_ptr<void> memory_;
};

inline Type type_of(DType dtype) { return dtype == DType::bfloat16 ? Type::bfloat16 : Type::float16; }

inline Rows rows_of(const TensorView& view) {
  return {static_cast<uint16_t*>(view.data), view.batch_stride, view.row_stride, view.head_stride};
}

/// The call as kernels know it.
class SentCall {
 public:
  SentCall(const Problem& problem, Sent& sent) : problem_(problem) {
    const int64_t tile = tile_rows(problem.head_dim);
    std::vector<SequenceRows> sequences;
    int64_t tiles = 0, bounds = 0;
    for (const Sequence& s : problem.sequences) {
      const auto narrow = [](int64_t x) { return static_cast<int32_t>(x); };
      sequences.push_back({s.query_offset, narrow(s.batch), narrow(s.query_begin), narrow(s.queries),
                           narrow(s.key_begin), narrow(s.keys), narrow(tiles), narrow(bounds)});
      tiles += ceil_div(s.queries, tile);
      bounds += ceil_div(s.keys, block_keys) + 1;
    }
    bounds_ = bounds;
    std::vector<Slopes> slopes;
    for (size_t i = 0; i < problem.slopes_before.size(); ++i) {
      const float before = problem.slopes_before[i], after = problem.slopes_after[i];
      slopes.push_back({static_cast<float>(slope_in_log2(before)), static_cast<float>(slope_in_log2(after)),
                        before == HUGE_VALF, after == HUGE_VALF});
    }
    sequences_at_ = sent.add(sequences);
    slopes_at_ = sent.add(slopes);
  }

  Call call(const Sent& sent) const {
    return {.q = rows_of(problem_.q),
            .k = rows_of(problem_.k),
            .v = rows_of(problem_.v),
            .sequences = sent.at<SequenceRows>(sequences_at_),
            .slopes = sent.at<Slopes>(slopes_at_),
            .queries = problem_.queries,
            .window = problem_.window,
            .heads = static_cast<int32_t>(problem_.heads),
            .kv_heads = static_cast<int32_t>(problem_.kv_heads),
            .head_dim = static_cast<int32_t>(problem_.head_dim),
            .tile_rows = tile_rows(problem_.head_dim),
            .causal = problem_.causal,
            .scale = problem_.scale,
            .scale2 = problem_.scale * std::numbers::log2e_v<float>};
  }
  /// Entries of all sequences for one head.
  int64_t bounds() const { return bounds_; }

 private:
  const Problem& problem_;
  size_t sequences_at_, slopes_at_;
  int64_t bounds_ = 0;
};

}  // namespace alibi::kernels::cuda
