// Backward attention on AMX. With P the weights, delta the row sums of dO * O, and everything transposed as in the
// forward pass (a query is a lane):
//
//   P^T  = exp2(factor * K Q^T + bias - log2 of the row's sum)     recomputed from the saved log-sum-exp
//   dP^T = V dO^T - delta                                          delta is loaded into the tiles beforehand
//   dS^T = P^T * dP^T
//   dV += P^T dO,   dK += dS^T Q * scale,   dQ^T += K^T dS^T * scale
//
// With dropout, Z is the mask and `kept` the factor of the weights that remain. P^T and dP^T are multiplied by kept Z
// before their last use. The factor `kept` is applied when sums are written: dP lacks it, and delta is divided by it.
//
// A few key blocks and a few query blocks are computed together, so that each sum is loaded and stored once for several
// products.
#include "attention/amx/backward.h"

#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>

#include "attention/amx/differentiate.h"
#include "attention/amx/pack.h"
#include "attention/amx/ramp.h"
#include "attention/amx/tiles.h"
#include "attention/workspace.h"

ALIBI_AMX_BEGIN
namespace alibi::kernels::amx {
namespace {

constexpr int64_t group_keys = 2;     ///< key blocks that are computed together
constexpr int64_t group_queries = 4;  ///< query blocks that are computed together

class Backward {
 public:
  Backward(const Problem& problem, const BackwardTask& task, const AttentionState& state, const VisitedBlocks& visited,
           const GradientSums& sums, GateSums& gates, std::vector<BiasGradient>& bias)
      : products_(),
        problem_(problem),
        task_(task),
        state_(state),
        visited_(visited),
        sums_(sums),
        gates_(gates),
        bias_(bias),
        kept_(DropoutMask::scale(problem.dropout)),
        sequence_(problem.sequences[task.sequence]),
        steps_(steps_of(problem.head_dim)),
        block_size_(steps_ * block_halves),
        workspace_(Workspace::take(static_cast<size_t>(floats_needed()))),
        keys_(halves(task.key_blocks)),
        keys_transposed_(halves(task.key_blocks)),
        values_(halves(task.key_blocks)),
        queries_(halves(task.query_blocks)),
        query_pairs_(halves(task.query_blocks)),
        douts_(halves(task.query_blocks)),
        dout_pairs_(halves(task.query_blocks)),
        minus_delta_(workspace_.part(task.query_blocks * block_rows)),
        log_sums_(workspace_.part(task.query_blocks * block_rows)),
        ramp_memory_(workspace_.part(Ramps::floats)),
        scores_(workspace_.part(block_floats)),
        dweights_(workspace_.part(block_floats)),
        pairs_(reinterpret_cast<uint16_t*>(workspace_.part(group_keys * group_queries * 3 * block_halves / 2))),
        query_draws_(words(problem.dropout > 0 ? task.query_blocks * block_rows : 0)),
        pair_draws_(words(problem.dropout > 0 ? task.key_blocks * block_pairs : 0)),
        diagonals_(bias.empty() ? nullptr : workspace_.part(diagonal_floats())),
        gate_sums_(gates.used() ? workspace_.part(gate_floats()) : nullptr) {
    if (sums.used()) {
      dk_ = sums.dk(task.sequence, task.kv_head, task.key_block);
      dv_ = sums.dv(task.sequence, task.kv_head, task.key_block);
    } else {
      dk_ = workspace_.part(task.key_blocks * block_size_);
      dv_ = workspace_.part(task.key_blocks * block_size_);
      dq_ = workspace_.part(task.query_blocks * block_size_);
    }
  }

  /// Returns false if the values in the tiles are not finite.
  bool run() {
    pack_keys();
    const auto bytes = static_cast<size_t>(task_.key_blocks * block_size_) * sizeof(float);
    if (task_.first_of_keys) {
      std::memset(dk_, 0, bytes);
      std::memset(dv_, 0, bytes);
    }
    const int64_t heads = task_.query_blocks > 0 ? problem_.group() : 0;
    for (int64_t g = 0; g < heads; ++g) run_head(task_.kv_head * problem_.group() + g);
    if (task_.last_of_keys) write_keys();
    return finite_;
  }

 private:
  int64_t floats_needed() const {
    const int64_t forms = (3 * task_.key_blocks + 4 * task_.query_blocks) * block_size_ / 2;
    const int64_t lanes = 2 * task_.query_blocks * block_rows;
    const int64_t pairs = 2 * block_floats + group_keys * group_queries * 3 * block_halves / 2;
    const int64_t sums = sums_.used() ? 0 : (2 * task_.key_blocks + task_.query_blocks) * block_size_;
    const int64_t draws = problem_.dropout > 0 ? task_.query_blocks * block_rows + task_.key_blocks * block_pairs : 0;
    return forms + lanes + Ramps::floats + pairs + sums + draws + (bias_.empty() ? 0 : diagonal_floats()) +
           (gates_.used() ? gate_floats() : 0);
  }
  int64_t gate_floats() const { return (task_.query_blocks + task_.key_blocks) * block_rows; }
  int64_t diagonal_floats() const { return DiagonalSums::floats(task_.key_blocks, task_.query_blocks); }
  uint32_t* words(int64_t count) { return reinterpret_cast<uint32_t*>(workspace_.part(count)); }

  uint16_t* halves(int64_t blocks) { return reinterpret_cast<uint16_t*>(workspace_.part(blocks * block_size_ / 2)); }

  /// Key blocks of the span that a query block visits, counted from the first key block of the span.
  Range visited_keys(int64_t head, int64_t query) const {
    const Range& all = visited_.at(task_.sequence, head, task_.query_block + query);
    const int64_t begin = all.begin - task_.key_block, end = all.end - task_.key_block;
    return {begin > 0 ? begin : 0, end < task_.key_blocks ? end : task_.key_blocks};
  }

  /// Copies only the blocks that are visited into tiles. With skipping and windows these are few.
  void pack_keys() {
    Range any = {task_.key_blocks, 0};
    for (int64_t g = 0; g < problem_.group(); ++g) {
      for (int64_t q = 0; q < task_.query_blocks; ++q) {
        const Range range = visited_keys(task_.kv_head * problem_.group() + g, q);
        if (range.begin >= range.end) continue;
        any.begin = range.begin < any.begin ? range.begin : any.begin;
        any.end = range.end > any.end ? range.end : any.end;
      }
    }
    for (int64_t b = any.begin; b < any.end; ++b) {
      if (b == any.begin) prefetch_keys(b);
      if (b + 1 < any.end) prefetch_keys(b + 1);
      const Source k = keys_at(problem_.k, b), v = keys_at(problem_.v, b);
      check_finite(k);
      check_finite(v);
      pack_rows(k, keys_ + b * block_size_);
      pack_transposed(k, keys_transposed_ + b * block_size_);
      pack_rows(v, values_ + b * block_size_);
    }
  }

  void check_finite(const Source& source) { finite_ = finite_ && std::isfinite(largest(source)); }

  Source keys_at(const TensorView& tensor, int64_t b) const {
    const int64_t row = (task_.key_block + b) * block_rows;
    return source_at(tensor, sequence_.batch, sequence_.key_begin + row, task_.kv_head, sequence_.keys - row,
                     problem_.head_dim);
  }
  void prefetch_keys(int64_t b) const {
    prefetch(keys_at(problem_.k, b));
    prefetch(keys_at(problem_.v, b));
  }

  Source queries_at(const TensorView& tensor, int64_t head, int64_t b) const {
    const int64_t row = (task_.query_block + b) * block_rows;
    return source_at(tensor, sequence_.batch, sequence_.query_begin + row, head, sequence_.queries - row,
                     problem_.head_dim);
  }
  void prefetch_queries(int64_t head, int64_t b) const {
    prefetch(queries_at(problem_.q, head, b));
    prefetch(queries_at(problem_.dout, head, b));
    prefetch(queries_at(problem_.out, head, b));
  }

  void pack_queries(int64_t head) {
    const float* lse = state_.lse.data<float>() + (sequence_.batch * problem_.heads + head) * problem_.queries;
    for (int64_t b = 0; b < task_.query_blocks; ++b) {
      const Range range = visited_keys(head, b);
      if (range.begin >= range.end) continue;
      if (b + 1 < task_.query_blocks) prefetch_queries(head, b + 1);
      const int64_t row = (task_.query_block + b) * block_rows;
      const int64_t rows = sequence_.queries - row;
      const Source q = queries_at(problem_.q, head, b), dout = queries_at(problem_.dout, head, b);
      check_finite(q);
      check_finite(dout);
      pack_columns(q, queries_ + b * block_size_);
      pack_pairs(q, query_pairs_ + b * block_size_);
      pack_columns(dout, douts_ + b * block_size_);
      pack_pairs(dout, dout_pairs_ + b * block_size_);
      float* delta = minus_delta_ + b * block_rows;
      row_products(dout, queries_at(problem_.out, head, b), delta);
      for (int64_t i = 0; i < block_rows; ++i) {
        constexpr float no_weight = 1e30f;  // makes the weights of rows beyond the end zero
        delta[i] = -delta[i] / kept_;
        log_sums_[b * block_rows + i] =
            i < rows ? lse[sequence_.query_begin + row + i] * std::numbers::log2e_v<float> : no_weight;
      }
    }
  }

  void fill_dropout(int64_t head) {
    const DropoutMask mask(problem_.dropout_seed, sequence_.batch, head);
    for (int64_t b = 0; b < task_.query_blocks; ++b) {
      const int64_t row = (task_.query_block + b) * block_rows;
      fill_query_draws(mask, sequence_.first_query_drawn + row, query_draws_ + b * block_rows);
    }
    for (int64_t b = 0; b < task_.key_blocks; ++b) {
      const int64_t row = (task_.key_block + b) * block_rows;
      fill_pair_draws(mask, sequence_.first_key_drawn + row, pair_draws_ + b * block_pairs);
    }
  }

  void run_head(int64_t head) {
    pack_queries(head);
    if (problem_.dropout > 0) fill_dropout(head);
    if (sums_.used()) dq_ = sums_.dq(task_.sequence, head, task_.query_block);
    if (task_.first_of_queries) {
      std::memset(dq_, 0, static_cast<size_t>(task_.query_blocks * block_size_) * sizeof(float));
    }
    if (gates_.used()) std::memset(gate_sums_, 0, static_cast<size_t>(gate_floats()) * sizeof(float));
    const HeadPlan plan(problem_, task_.sequence, head);
    Ramps ramps(plan, ramp_memory_);
    std::optional<DiagonalSums> diagonals;
    if (!bias_.empty()) diagonals.emplace(task_.key_blocks, task_.query_blocks, diagonals_);
    const Head head_of = {plan, ramps, diagonals ? &*diagonals : nullptr};
    for (int64_t k = 0; k < task_.key_blocks; k += group_keys) {
      for (int64_t q = 0; q < task_.query_blocks; q += group_queries) run_group(head_of, k, q);
    }
    if (diagonals) {
      const int64_t distance = sequence_.query_offset + (task_.query_block - task_.key_block) * block_rows;
      diagonals->finish(*plan.bias.form, distance, kept_, bias_[static_cast<size_t>(head % problem_.group())]);
    }
    if (gates_.used()) add_gate_sums(head);
    if (task_.last_of_queries) write_queries(head);
  }

  float* query_sums(int64_t query) const { return gate_sums_ + query * block_rows; }
  float* key_sums(int64_t key) const { return gate_sums_ + (task_.query_blocks + key) * block_rows; }

  void add_gate_sums(int64_t head) {
    for (int64_t q = 0; q < task_.query_blocks; ++q) {
      gates_.add(BlockIndex::Of::queries, task_.sequence, head, task_.query_block + q, query_sums(q), kept_);
    }
    for (int64_t k = 0; k < task_.key_blocks; ++k) {
      gates_.add(BlockIndex::Of::keys, task_.sequence, head, task_.key_block + k, key_sums(k), kept_);
    }
  }

  PairTiles tiles_of(int64_t k, int64_t q) const {
    uint16_t* at = pairs_ + (k * group_queries + q) * 3 * block_halves;
    return {at, at + block_halves, at + 2 * block_halves};
  }

  struct Head {
    const HeadPlan& plan;
    Ramps& ramps;
    DiagonalSums* diagonals;  ///< null if the caller does not want the gradient of the bias
  };

  /// Key blocks [key, key + group_keys) and query blocks [query, query + group_queries) of the spans.
  void run_group(const Head& head, int64_t key, int64_t query) {
    const int64_t keys_left = task_.key_blocks - key, queries_left = task_.query_blocks - query;
    const int64_t keys = keys_left < group_keys ? keys_left : group_keys;
    const int64_t queries = queries_left < group_queries ? queries_left : group_queries;
    bool seen[group_keys][group_queries] = {};
    bool key_seen[group_keys] = {};
    for (int64_t q = 0; q < queries; ++q) {
      const Range range = visited_keys(head.plan.head, query + q);
      const int64_t begin = range.begin > key ? range.begin - key : 0;
      const int64_t end = range.end < key + keys ? range.end - key : keys;
      for (int64_t k = begin; k < end; ++k) {
        make_pair(head, key + k, query + q, tiles_of(k, q));
        seen[k][q] = key_seen[k] = true;
      }
      if (begin >= end) continue;
      for (int64_t step = 0; step < steps_; ++step) {
        Operands operands;
        for (int64_t k = begin; k < end; ++k) {
          operands.add(keys_transposed_ + (key + k) * block_size_ + step * block_halves, tiles_of(k, q).score_pairs);
        }
        float* dq = dq_ + (query + q) * block_size_ + step * block_floats;
        products_.multiply(Start::block(dq), operands, dq);
      }
    }
    for (int64_t k = 0; k < keys; ++k) {
      if (!key_seen[k]) continue;
      for (int64_t step = 0; step < steps_; ++step) {
        Operands weights, scores;
        for (int64_t q = 0; q < queries; ++q) {
          if (!seen[k][q]) continue;
          const int64_t at = (query + q) * block_size_ + step * block_halves;
          weights.add(tiles_of(k, q).weights, dout_pairs_ + at);
          scores.add(tiles_of(k, q).score_rows, query_pairs_ + at);
        }
        float* dv = dv_ + (key + k) * block_size_ + step * block_floats;
        products_.multiply(Start::block(dv), weights, dv);
        float* dk = dk_ + (key + k) * block_size_ + step * block_floats;
        products_.multiply(Start::block(dk), scores, dk);
      }
    }
  }

  void make_pair(const Head& head, int64_t key, int64_t query, const PairTiles& to) {
    const int64_t position = sequence_.query_offset + (task_.query_block + query) * block_rows;
    const Ramp ramp = head.ramps.at(task_.key_block + key, position);
    const uint16_t *keys = keys_ + key * block_size_, *values = values_ + key * block_size_;
    const uint16_t *queries = queries_ + query * block_size_, *douts = douts_ + query * block_size_;
    const float* delta = minus_delta_ + query * block_rows;
    products_.multiply(ramp.start(), {keys, block_halves, queries, block_halves, steps_}, scores_);
    products_.multiply(Start::rows(delta), {values, block_halves, douts, block_halves, steps_}, dweights_);
    PairScalars scalars = {.factor = head.plan.factor,
                           .base = ramp.base,
                           .gates = ramp.gates,
                           .log_sums = log_sums_ + query * block_rows,
                           .minus_delta = delta,
                           .key = key,
                           .query = query,
                           .query_sums = gates_.used() ? query_sums(query) : nullptr,
                           .key_sums = gates_.used() ? key_sums(key) : nullptr};
    if (problem_.dropout > 0) {
      scalars.dropout = {query_draws_ + query * block_rows, pair_draws_ + key * block_pairs,
                         DropoutMask::threshold(problem_.dropout)};
    }
    differentiate(part_of(head, ramp), scores_, dweights_, scalars, to, head.diagonals);
  }

  static BiasPart part_of(const Head& head, const Ramp& ramp) {
    if (head.diagonals == nullptr) return BiasPart::none;
    const bool one_parameter = !head.plan.bias->slides() && ramp.form == Ramp::Form::constant;
    return one_parameter ? BiasPart::total : BiasPart::diagonals;
  }

  void write_queries(int64_t head) {
    float factors[block_rows];
    for (float& factor : factors) factor = problem_.scale * kept_;
    for (int64_t b = 0; b < task_.query_blocks; ++b) {
      const int64_t row = (task_.query_block + b) * block_rows;
      unpack_transposed(dq_ + b * block_size_, factors, RowOrder::interleaved,
                        target_at(problem_.dq, sequence_.batch, sequence_.query_begin + row, head,
                                  sequence_.queries - row, problem_.head_dim));
    }
  }

  void write_keys() {
    for (int64_t b = 0; b < task_.key_blocks; ++b) {
      const int64_t row = (task_.key_block + b) * block_rows;
      const auto target = [&](const TensorView& tensor) {
        return target_at(tensor, sequence_.batch, sequence_.key_begin + row, task_.kv_head, sequence_.keys - row,
                         problem_.head_dim);
      };
      unpack_rows(dk_ + b * block_size_, problem_.scale * kept_, target(problem_.dk));
      unpack_rows(dv_ + b * block_size_, kept_, target(problem_.dv));
    }
  }

  const BlockProducts products_;
  const Problem& problem_;
  const BackwardTask& task_;
  const AttentionState& state_;
  const VisitedBlocks& visited_;
  const GradientSums& sums_;
  GateSums& gates_;
  std::vector<BiasGradient>&
      bias_;    ///< one for each head of the group; empty if the caller does not want the gradient of the bias
  float kept_;  ///< the factor that dropout applies to the remaining weights
  const Sequence& sequence_;
  int64_t steps_;
  int64_t block_size_;  ///< values of a block: 32 * head_dim rounded up to 32
  Workspace workspace_;
  // Blocks of the spans in the layouts of tiles.h.
  uint16_t* keys_;             ///< `rows`
  uint16_t* keys_transposed_;  ///< `transposed`
  uint16_t* values_;           ///< `rows`
  uint16_t* queries_;          ///< `columns`
  uint16_t* query_pairs_;      ///< `pairs`
  uint16_t* douts_;            ///< `columns`
  uint16_t* dout_pairs_;       ///< `pairs`
  float* minus_delta_;         ///< [query_blocks][32]
  float* log_sums_;            ///< [query_blocks][32], log2
  float* ramp_memory_;
  float* scores_;
  float* dweights_;
  uint16_t* pairs_;        ///< [group_keys][group_queries][3][32][32]
  uint32_t* query_draws_;  ///< [query_blocks][32], with dropout
  uint32_t* pair_draws_;   ///< [key_blocks][16], with dropout
  float* diagonals_;
  float* gate_sums_;  ///< [query_blocks + key_blocks][32] of a head, with gates whose gradient is wanted
  bool finite_ = true;
  // Sums: dK and dV as float32 blocks, dQ transposed.
  float* dk_ = nullptr;
  float* dv_ = nullptr;
  float* dq_ = nullptr;
};

}  // namespace

bool backward_task(const Problem& problem, const BackwardTask& task, const AttentionState& state,
                   const VisitedBlocks& visited, const GradientSums& sums, GateSums& gates,
                   std::vector<BiasGradient>& bias) {
  const FlushDenormals flush;
  return Backward(problem, task, state, visited, sums, gates, bias).run();
}

}  // namespace alibi::kernels::amx
ALIBI_AMX_END
