// Data that the host sends to the kernels: arrays, device memory, and the call in the form that kernels use.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numbers>
#include <utility>
#include <vector>

#include "attention/blocks.h"
#include "attention/cuda/passes.h"
#include "attention/skip/weights.h"
#include "core/parallel.h"

namespace alibi::kernels::cuda {

/// Arrays that are sent to the device in one piece.
class Sent {
 public:
  /// Reserves space for the values. They are copied by send().
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
    // A larger amount is copied instead. The copy may wait for the stream, but takes less time than many launches.
    constexpr size_t of_launch = StoreArguments::max_chunks * sizeof(Chunk), max_launches = 8;
    bytes_.resize((bytes_.size() + sizeof(Chunk) - 1) / sizeof(Chunk) * sizeof(Chunk));
    memory_ = machine.workspace(bytes_.size());
    auto* const to = static_cast<std::byte*>(memory_.get());
    if (bytes_.size() > max_launches * of_launch) return machine.copy_to_device(to, bytes_.data(), bytes_.size());
    for (size_t at = 0; at < bytes_.size(); at += of_launch) {
      StoreArguments part;
      const size_t size = std::min(of_launch, bytes_.size() - at);
      std::memcpy(part.chunks, bytes_.data() + at, size);
      part.to = reinterpret_cast<Chunk*>(to + at);
      part.count = static_cast<int32_t>(size / sizeof(Chunk));
      machine.check_launch("store", machine.launches().store(part, machine.stream()));
    }
  }
  template <class T>
  const T* at(size_t place) const {
    return reinterpret_cast<const T*>(static_cast<const std::byte*>(memory_.get()) + place);
  }

 private:
  std::vector<std::byte> bytes_;
  std::shared_ptr<void> memory_;
};

/// Allocates memory for an array that kernels write.
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

/// The call in the form that kernels use.
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
      tiles += core::ceil_div(s.queries, tile);
      bounds += core::ceil_div(s.keys, block_keys) + 1;
    }
    bounds_ = bounds;
    tiles_ = tiles;
    const auto like_the_first = [&](const Sequence& s) {
      const Sequence& first = problem.sequences.front();
      return s.queries == first.queries && s.keys == first.keys;
    };
    uniform_ = std::all_of(problem.sequences.begin(), problem.sequences.end(), like_the_first);
    const auto repeats = [&](const std::vector<float>& of) {  // for each batch entry
      return std::equal(of.begin() + problem.heads, of.end(), of.begin());
    };
    const bool same =
        problem.batch > 0 && repeats(problem.biases->slopes_before) && repeats(problem.biases->slopes_after);
    slopes_stride_ = same ? 0 : problem.heads;
    std::vector<Slopes> slopes;
    const size_t count = same ? static_cast<size_t>(problem.heads) : problem.biases->slopes_before.size();
    for (size_t i = 0; i < count; ++i) {
      const float before = problem.biases->slopes_before[i], after = problem.biases->slopes_after[i];
      slopes.push_back({static_cast<float>(slope_in_log2(before)), static_cast<float>(slope_in_log2(after)),
                        before == HUGE_VALF, after == HUGE_VALF});
    }
    std::vector<float> sinks = problem.sinks;
    for (float& sink : sinks) sink *= std::numbers::log2e_v<float>;
    sequences_at_ = sent.add(sequences);
    slopes_at_ = sent.add(slopes);
    sinks_at_ = sent.add(sinks);
    order_at_ = sent.add(ranked(problem, 1));
    kv_order_at_ = sent.add(ranked(problem, problem.group()));
  }

  Call call(const Sent& sent) const {
    return {.q = rows_of(problem_.q),
            .k = rows_of(problem_.k),
            .v = rows_of(problem_.v),
            .sequences = sent.at<SequenceRows>(sequences_at_),
            .slopes = sent.at<Slopes>(slopes_at_),
            .sinks = problem_.sinks.empty() ? nullptr : sent.at<float>(sinks_at_),
            .gates = nullptr,
            .head_order = sent.at<HeadRank>(order_at_),
            .kv_head_order = sent.at<HeadRank>(kv_order_at_),
            .queries = problem_.queries,
            .window = problem_.window_before < unbounded ? problem_.window_before : 0,
            .heads = static_cast<int32_t>(problem_.heads),
            .kv_heads = static_cast<int32_t>(problem_.kv_heads),
            .head_dim = static_cast<int32_t>(problem_.head_dim),
            .tile_rows = tile_rows(problem_.head_dim),
            .slopes_stride = static_cast<int32_t>(slopes_stride_),
            .sequence_count = static_cast<int32_t>(problem_.sequences.size()),
            .uniform = uniform_,
            .tiles = static_cast<int32_t>(tiles_),
            .key_units = static_cast<int32_t>(bounds_),
            .both_units = static_cast<int32_t>(uniform_ ? both_units() : bounds_),
            .causal = problem_.causal,
            .scale = problem_.scale,
            .scale2 = problem_.scale * std::numbers::log2e_v<float>,
            .gate_entries = 0};
  }
  /// Number of entries of all sequences for one head.
  int64_t bounds() const { return bounds_; }
  /// Number of query tiles of all sequences and all heads.
  int64_t tiles() const { return tiles_ * problem_.heads; }

 private:
  /// Groups of `group` heads, sorted by the estimated number of key tiles that the last rows of the first sequence
  /// visit.
  static std::vector<HeadRank> ranked(const Problem& problem, int64_t group) {
    const int64_t rows = tile_rows(problem.head_dim), heads = problem.heads / group;
    std::vector<std::pair<int64_t, int32_t>> horizons;
    for (int64_t head = 0; head < heads; ++head) {
      int64_t most = 0;
      for (int64_t i = 0; i < group && !problem.sequences.empty(); ++i) {
        const Sequence& s = problem.sequences.front();
        const int64_t row = std::max<int64_t>(s.queries - rows, 0);
        most = std::max(most, likely_keys(problem, s, head * group + i, row, std::min(rows, s.queries)));
      }
      horizons.emplace_back(-core::ceil_div(most, rows), static_cast<int32_t>(head));
    }
    std::sort(horizons.begin(), horizons.end());
    std::vector<HeadRank> order;
    for (size_t i = 0, begin = 0; i < horizons.size(); ++i) {
      if (horizons[i].first != horizons[begin].first) begin = i;
      order.push_back({horizons[i].second, static_cast<int32_t>(begin), 0});
    }
    for (HeadRank& rank : order) ++order[static_cast<size_t>(rank.begin)].size;
    for (HeadRank& rank : order) rank.size = order[static_cast<size_t>(rank.begin)].size;
    return order;
  }

  /// For sequences of equal length: the number of spans of 128 keys in each.
  int64_t both_units() const {
    const auto count = static_cast<int64_t>(problem_.sequences.size());
    return count == 0 ? 0 : count * core::ceil_div(problem_.sequences.front().keys, int64_t{both_keys});
  }

  const Problem& problem_;
  size_t sequences_at_, slopes_at_, sinks_at_, order_at_, kv_order_at_;
  int64_t bounds_ = 0, tiles_ = 0, slopes_stride_ = 0;
  bool uniform_ = false;
};

}  // namespace alibi::kernels::cuda
