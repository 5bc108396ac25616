// A call of attention_positions() with checked arguments, and how the kernels divide it. Tokens are ordered along a
// space-filling curve (order.h). A task has a few neighbouring blocks of queries of the heads that share a key/value
// head. It visits the blocks of keys from near to far.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <numbers>
#include <vector>

#include "attention/problem.h"
#include "attention/spatial/order.h"
#include "attention/vector/tasks.h"

namespace alibi::kernels {

/// The tokens of a batch entry or of a packed sequence. Entries with equal positions share their orders.
struct SpatialSequence {
  std::shared_ptr<const TokenOrder> queries, keys;
  int64_t stops = 0;  ///< index of its first entry of AttentionPositionsState::stops, which is [heads][query blocks]
};

struct SpatialProblem {
  Problem base;  ///< its sequences leave out padding
  Distance distance = Distance::euclidean;
  std::vector<SpatialSequence> sequences;  ///< in the order of base.sequences
  bool padded = false;                     ///< whether some rows of the tensors belong to no sequence

  int64_t stop_index(size_t sequence, int64_t head, int64_t block) const {
    const SpatialSequence& of = sequences[sequence];
    return of.stops + head * of.queries->size() + block;
  }
  /// Slope of a query block in units of log2; leading tokens have none.
  double slope(size_t sequence, int64_t head, int64_t query_block) const;
};

/// A log-sum-exp in units of log2. Both passes must round it in the same way.
inline float in_log2(float lse) { return lse * std::numbers::log2e_v<float>; }

/// Query blocks that one thread computes together, so that they share each key block that it loads.
struct SpatialTask {
  size_t sequence = 0;
  Range heads, blocks;
  int64_t work = 0;
};

/// Divides query blocks of a key/value head into tasks by calls of visit(heads, blocks). A task has either leading
/// tokens or others.
template <class Visit>
void for_each_spatial_task(const Problem& problem, const TokenOrder& queries, int64_t kv_head, const Range& blocks,
                           const Visit& visit) {
  constexpr int64_t blocks_together = 4, heads_together = 8;
  const int64_t group_end = (kv_head + 1) * problem.group();
  for (int64_t head = kv_head * problem.group(); head < group_end; head += heads_together) {
    const Range heads = {head, std::min(head + heads_together, group_end)};
    const int64_t step = std::max<int64_t>(1, blocks_together / heads.size());
    for (int64_t block = blocks.begin; block < blocks.end;) {
      const int64_t border = queries.is_leading(block) ? queries.leading_blocks : blocks.end;
      const int64_t end = std::min({block + step, border, blocks.end});
      visit(heads, Range{block, end});
      block = end;
    }
  }
}

/// The penalty of a distance, slope * distance in log2 units, in steps that are fine where weights are decided. The
/// skip rule decides for whole steps.
using PenaltyStep = uint16_t;
inline constexpr int penalty_steps = 1024;
PenaltyStep penalty_step(double penalty);

/// Lower bounds of the penalties of all key blocks, as steps and (unless null) as numbers. `box` is null for leading
/// queries.
void measure_penalties(const TokenOrder& keys, const Box* box, Distance distance, double slope, PenaltyStep* steps,
                       double* penalties);

/// The bounds of the skip rule for the keys of each block.
class SpatialBounds {
 public:
  static constexpr int levels = WeightBounds::levels;
  using Values = WeightBounds::Values;

  /// One query head of one sequence.
  struct Head {
    WeightBounds::Head of_queries;   ///< only centre, centre_norm and x are set
    const Values* logs = nullptr;    ///< [key blocks]: log2 of the sum of 2^(x |k - c|), rounded up
    std::array<double, levels> top;  ///< the largest of them
    float radius = 0, norm = 0;      ///< upper bounds of |k - c| and |k| of all keys
  };

  explicit SpatialBounds(const SpatialProblem& problem);
  Head head(size_t sequence, int64_t head) const;

 private:
  void measure_samples(size_t sequence, int64_t kv_head);
  void measure_tops(size_t sequence, int64_t head);
  size_t head_index(size_t sequence, int64_t head) const {
    return sequence * static_cast<size_t>(problem_.base.heads) + static_cast<size_t>(head);
  }
  size_t kv_index(size_t sequence, int64_t kv_head) const {
    return sequence * static_cast<size_t>(problem_.base.kv_heads) + static_cast<size_t>(kv_head);
  }

  const SpatialProblem& problem_;
  int64_t size_;                                 // head_dim, padded to whole vectors
  std::vector<float> centres_, centre_norms_;    // [sequences][kv_heads]([size])
  std::vector<float> lengths_;                   // [sequences][heads]: typical x
  std::vector<size_t> first_, first_of_keys_;    // of each sequence: its first entry of logs_, of radii_
  std::vector<Values> logs_;                     // [sequences][heads][key blocks]
  std::vector<float> radii_, norms_;             // [sequences][kv_heads][key blocks]
  std::vector<std::array<double, levels>> top_;  // [sequences][heads]
  std::vector<float> radius_, norm_;             // [sequences][kv_heads]
};

/// Bounds of what remains from each penalty step on, for one query block.
class RemainingWeights {
 public:
  /// Penalties are those of measure_penalties().
  void measure(const SpatialBounds::Head& keys, const Levels& at, const std::vector<PenaltyStep>& steps,
               const std::vector<double>& penalties);
  /// The logarithm of the weight of all key blocks from this step on, as a chord.
  Chord from(PenaltyStep step) const;

 private:
  std::array<double, 2> top_ = {};
  double beyond_ = 0;
  std::vector<std::array<double, 2>> sums_;  // [penalty_steps]: relative to 2^top
};

/// Queries of all heads that read a key/value head, and their share of its gradients.
struct SpatialChunk {
  size_t sequence = 0;
  int64_t kv_head = 0;
  Range blocks;
  int64_t work = 0;
  std::vector<std::shared_ptr<float>> sums;  ///< for each key block null, or dk and dv: [2][key_rows][stride]
  std::vector<double> dslopes;               ///< [heads of the group]; empty if the caller does not want them
};

// Compiled for every instruction set.

/// Computes radii, norms (of all keys of the block) and the logs of every head of the group, `head_stride` apart.
void spatial_measure_keys(const SpatialProblem& problem, size_t sequence, int64_t kv_head, int64_t block,
                          const WeightBounds::Head* heads, SpatialBounds::Values* logs, int64_t head_stride,
                          float* radius, float* norm);
/// bounds is null if the skip rule does not apply.
AttentionStats spatial_forward_task(const SpatialProblem& problem, const SpatialTask& task, const SpatialBounds* bounds,
                                    AttentionPositionsState* state);
/// dq of a chunk's queries, and its sums.
void spatial_backward_chunk(const SpatialProblem& problem, const AttentionPositionsState& state, SpatialChunk& chunk);
/// Writes dk and dv of one key block: the sums of the chunks, added in order.
void spatial_write_key_gradients(const SpatialProblem& problem, const std::vector<SpatialChunk>& chunks,
                                 int64_t key_block);

/// Checks the arguments and orders the tokens.
SpatialProblem make_spatial_problem(const char* operation, const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionPositions& positions, const AttentionPositionsOptions& options,
                                    const Tensor& out);
void spatial_forward(const SpatialProblem& problem, AttentionPositionsState* state);
void spatial_backward(const SpatialProblem& problem, const AttentionPositionsState& state, float* dslopes);

}  // namespace alibi::kernels
