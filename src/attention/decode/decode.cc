// Decoding in three passes, each in parallel:
//
//   1. Each group of rows that share keys visits its nearest keys. Then the skip rule decides which other keys it
//   needs.
//   2. These keys are divided into units of a fixed number of keys, and each unit computes a partial result.
//   3. The partial results of each row are merged, from the nearest keys to the farthest unit.
//
// Groups, units and the order of merging depend only on shapes and values, so the bits do not depend on threads.
#include "attention/decode/decode.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <vector>

#include "alibi/runtime.h"
#include "attention/decode/device_cache.h"
#include "attention/kernel.h"
#include "attention/kernel_state.h"
#include "attention/problem.h"
#include "attention/skip/norms.h"
#include "attention/workspace.h"
#include "core/check.h"
#include "core/parallel.h"

namespace alibi {
namespace {

using namespace kernels;

/// Number of keys on each side of the queries that are visited before the skip rule is applied.
constexpr int64_t near_keys = 2 * cache_block;
/// Bytes of keys and values in a task.
constexpr int64_t task_bytes = 1 << 17;

/// Rows that read the same keys: queries [query_begin, query_begin + queries) of a sequence, of the heads from
/// head_begin on.
struct Group {
  size_t sequence = 0;
  int64_t kv_head = 0;
  int64_t head_begin = 0, query_begin = 0, queries = 0;
  size_t first_row = 0, rows = 0;        // index in Decode::rows_, head by head
  int64_t seen_begin = 0, seen_end = 0;  // keys that at least one of its rows sees
  int64_t near_begin = 0, near_end = 0;  // keys that are visited first; empty without the skip rule
  size_t first_unit = 0, units = 0;
};

/// Keys [begin, end) of a group, and the index of its rows' first partial result.
struct Unit {
  size_t group = 0;
  int64_t begin = 0, end = 0;
  size_t first_partial = 0;
};

int64_t query_offset(const Problem& problem, const Group& group) {
  return problem.sequences[group.sequence].query_offset;
}

/// Partial results, and the floats that they point to.
struct Partials {
  Partials(size_t count, int64_t stride) : all(count), out(Tensor::empty({static_cast<int64_t>(count), stride})) {
    for (size_t i = 0; i < count; ++i) all[i].out = out.data<float>() + static_cast<int64_t>(i) * stride;
  }

  std::vector<DecodePartial> all;
  Tensor out;
};

class Decode {
 public:
  /// The keys are those of the cache, or if it is null those of the problem.
  Decode(const Problem& problem, const core::StateOf<KvCache>* cache)
      : problem_(problem),
        cache_(cache),
        dtype_(cache != nullptr ? cache->dtype : problem.dtype),
        stride_(cache != nullptr ? cache->stride : problem.head_dim),
        row_bytes_(cache != nullptr ? cache->row_bytes() : stride_ * static_cast<int64_t>(size_of(dtype_))),
        queries_(Tensor::empty({row_count(), stride_})) {
    make_groups();
  }

  void run(AttentionState* state) {
    // Without a cache there are no norms, so every key is visited, as the rule permits.
    if (cache_ != nullptr && skip_rule_applies(problem_)) visit_near();
    make_units();
    visit_units();
    merge(state);
    if (state != nullptr) count_blocks(state->stats);
  }

 private:
  int64_t row_count() const { return problem_.batch * problem_.queries * problem_.heads; }
  const Sequence& sequence_of(const Group& group) const { return problem_.sequences[group.sequence]; }
  CachedHead head_of(const Group& group) const {
    return cache_ != nullptr ? CachedHead(*cache_, sequence_of(group).batch, group.kv_head)
                             : CachedHead(problem_, sequence_of(group), group.kv_head);
  }
  /// Number of pieces of `keys` keys in a task.
  int64_t grain(int64_t keys) const {
    return std::max<int64_t>(1, task_bytes / std::max<int64_t>(1, 2 * keys * row_bytes_));
  }
  std::span<const DecodeRow> rows_of(const Group& group) const { return {&rows_[group.first_row], group.rows}; }

  void make_groups();
  void add_row(Group& group, int64_t query, int64_t head);
  void visit(const Group& group, int64_t begin, int64_t end, const void* next, DecodePartial* partials) const;
  const void* keys_from(const Group& group, int64_t key) const;
  void visit_near();
  void limit_rows(const Group& group, const DecodePartial* partials);
  void make_units();
  void visit_units();
  void merge(AttentionState* state) const;
  void merge_row(const Group& group, size_t row, AttentionState* state) const;
  int64_t query_head_of(const Group& group, size_t row) const {
    return group.head_begin + static_cast<int64_t>(row) / group.queries;
  }
  /// In log2 units.
  double sink_of(const Group& group, size_t row) const {
    return static_cast<double>(problem_.sink(query_head_of(group, row))) * std::numbers::log2e;
  }
  void count_blocks(AttentionStats& stats) const;

  const Problem& problem_;
  const core::StateOf<KvCache>* cache_;
  DType dtype_;
  int64_t stride_, row_bytes_;
  Tensor queries_;               // [rows, stride] float32, in the order of rows_
  std::vector<DecodeRow> rows_;  // group by group
  std::vector<Group> groups_;
  std::vector<Unit> units_;
  std::optional<Partials> near_, far_;  // one for each row, and one for each row of each unit
};

void Decode::make_groups() {
  rows_.reserve(static_cast<size_t>(row_count()));
  const int64_t heads = problem_.group();
  const int64_t heads_together = std::min(heads, decode_rows_together);
  const int64_t queries_together = std::max<int64_t>(1, decode_rows_together / heads_together);
  for (const Sequence& sequence : problem_.sequences) {
    for (int64_t kv_head = 0; kv_head < problem_.kv_heads; ++kv_head) {
      const int64_t heads_end = (kv_head + 1) * heads;
      for (int64_t head = kv_head * heads; head < heads_end; head += heads_together) {
        for (int64_t query = 0; query < sequence.queries; query += queries_together) {
          Group group{.sequence = static_cast<size_t>(sequence.number), .kv_head = kv_head, .head_begin = head};
          group.query_begin = query;
          group.queries = std::min(queries_together, sequence.queries - query);
          group.first_row = rows_.size();
          group.seen_begin = sequence.keys;
          for (int64_t h = head; h < std::min(head + heads_together, heads_end); ++h) {
            for (int64_t i = 0; i < group.queries; ++i) add_row(group, query + i, h);
          }
          group.rows = rows_.size() - group.first_row;
          group.seen_begin = std::min(group.seen_begin, group.seen_end);
          groups_.push_back(group);
        }
      }
    }
  }
}

void Decode::add_row(Group& group, int64_t query, int64_t head) {
  const Sequence& sequence = sequence_of(group);
  float* q = queries_.data<float>() + static_cast<int64_t>(rows_.size()) * stride_;
  for (int64_t d = 0; d < stride_; ++d) {
    const int64_t at = problem_.q.offset(sequence.batch, sequence.query_begin + query, head) + d;
    q[d] = d < problem_.head_dim ? load_value(problem_.dtype, problem_.q.data, at) : 0.0f;
  }
  decode_arrange(q, stride_, dtype_);
  const HeadBias bias = problem_.bias(sequence, head);
  const int64_t position = query_offset(problem_, group) + query;
  Range seen = Problem::keys_seen(bias, position, position, sequence.keys);
  if (cache_ != nullptr) seen.begin = std::max(seen.begin, cache_->begin(group.kv_head));
  const auto [begin, end] = Range{seen.begin, std::max(seen.begin, seen.end)};
  if (begin < end) {
    group.seen_begin = std::min(group.seen_begin, begin);
    group.seen_end = std::max(group.seen_end, end);
  }
  rows_.push_back({.q = q, .bias = bias, .position = position, .begin = begin, .end = end});
}

/// Clears the partial results of the rows and visits keys [begin, end). `next` points to the keys that this thread will
/// probably visit next, because tasks are started in order.
void Decode::visit(const Group& group, int64_t begin, int64_t end, const void* next, DecodePartial* partials) const {
  std::fill_n(partials->out, static_cast<int64_t>(group.rows) * stride_, 0.0f);
  decode_range(head_of(group), problem_.score_scale(), rows_of(group), begin, end, next, partials);
}

/// The keys of a group, from `key` on.
const void* Decode::keys_from(const Group& group, int64_t key) const {
  if (cache_ != nullptr) return cache_->key_rows(sequence_of(group).batch, group.kv_head, key);
  const KeyRow at = problem_.key_row(sequence_of(group), key);
  const int64_t offset = problem_.k.offset(at.batch, at.row, group.kv_head);
  return static_cast<const char*>(problem_.k.data) + offset * static_cast<int64_t>(size_of(dtype_));
}

/// Sets the near keys: those within near_keys of the queries, or the nearest keys if there are none.
void set_near(const Problem& problem, Group& group) {
  const int64_t newest = group.seen_end - 1;
  const int64_t first = std::clamp(query_offset(problem, group) + group.query_begin, group.seen_begin, newest);
  const int64_t last = std::clamp(query_offset(problem, group) + group.query_begin + group.queries - 1, first, newest);
  const int64_t begin = (first - near_keys + 1) / cache_block * cache_block;
  const int64_t end = core::ceil_div(last + near_keys, cache_block) * cache_block;
  group.near_begin = std::max(begin, group.seen_begin);
  group.near_end = std::min(end, group.seen_end);
}

void Decode::visit_near() {
  near_.emplace(rows_.size(), stride_);
  for (Group& group : groups_) {
    if (group.seen_begin < group.seen_end) set_near(problem_, group);
  }
  const int64_t together = threads();
  core::parallel_ranges(static_cast<int64_t>(groups_.size()), grain(2 * near_keys), [&](int64_t begin, int64_t end) {
    const FlushDenormals flush;  // as in the visits, so that decisions do not depend on the caller's setting
    for (int64_t g = begin; g < end; ++g) {
      Group& group = groups_[static_cast<size_t>(g)];
      if (group.seen_begin == group.seen_end) continue;
      const auto next = static_cast<size_t>(g + together);
      const void* keys = next < groups_.size() ? keys_from(groups_[next], groups_[next].near_begin) : nullptr;
      DecodePartial* partials = &near_->all[group.first_row];
      visit(group, group.near_begin, group.near_end, keys, partials);
      limit_rows(group, partials);
    }
  });
}

/// Applies the skip rule to the keys that the rows see beyond their near keys.
void Decode::limit_rows(const Group& group, const DecodePartial* partials) {
  const double tolerance = static_cast<double>(skip_budget(problem_));
  const int64_t head = sequence_of(group).batch * cache_->kv_heads + group.kv_head;
  std::vector<float> centre(cache_->centre(head), cache_->centre(head) + stride_);
  decode_arrange(centre.data(), stride_, dtype_);  // like the queries
  for (size_t r = 0; r < group.rows; ++r) {
    DecodeRow& row = rows_[group.first_row + r];
    constexpr double max_weight = 0x1p512;  // of a sink; the rule is for finite sums
    const bool has_keys = std::isfinite(partials[r].max);
    const double of_sink = has_keys ? std::min(std::exp2(sink_of(group, r) - partials[r].max), max_weight) : 0;
    const double budget = tolerance * (partials[r].sum + of_sink);
    const auto rule = [&] {
      const DecodeSkip::Scores scores(row.q, centre.data(), stride_, problem_.score_scale());
      return DecodeSkip(*cache_, head, scores, problem_.score_scale(), row.bias, row.position, partials[r].max, budget);
    };
    const auto falls = [&](Side side) { return row.bias->falls(side, problem_.tolerance); };
    if (row.begin < std::min(group.near_begin, row.position) && (falls(Side::before) || row.bias.decay)) {
      row.begin = rule().first_needed(row.begin, std::min({group.near_begin, row.position, row.end}));
    }
    if (row.end > std::max(group.near_end, row.position + 1) && falls(Side::after)) {
      row.end = rule().end_needed(std::max({group.near_end, row.position + 1, row.begin}), row.end);
    }
  }
}

void Decode::make_units() {
  // Enough units for the threads of a large machine, and few enough that merging them is cheap.
  constexpr int64_t min_keys = 512, max_units = 256;
  size_t partials = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    group.first_unit = units_.size();
    if (group.seen_begin == group.seen_end) continue;
    const int64_t keys = round_up(std::max(min_keys, core::ceil_div(sequence_of(group).keys, max_units)), cache_block);
    int64_t begin = group.seen_end, end = group.seen_begin;  // keys that the skip rule did not drop
    for (const DecodeRow& row : rows_of(group)) {
      if (row.begin == row.end) continue;
      begin = std::min(begin, row.begin);
      end = std::max(end, row.end);
    }
    // Units end at multiples of their size, independent of the skip rule. The nearest unit comes first.
    const auto add = [&](int64_t from, int64_t to) {
      for (int64_t unit = (to - 1) / keys * keys; from < to && unit + keys > from; unit -= keys) {
        units_.push_back({g, std::max(unit, from), std::min(unit + keys, to), partials});
        partials += group.rows;
      }
    };
    if (near_) {
      add(begin, group.near_begin);
      add(group.near_end, end);
    } else {
      add(begin, end);
    }
    group.units = units_.size() - group.first_unit;
  }
  far_.emplace(partials, stride_);
}

void Decode::visit_units() {
  int64_t longest = 0;
  for (const Unit& unit : units_) longest = std::max(longest, unit.end - unit.begin);
  const int64_t together = threads();
  core::parallel_ranges(static_cast<int64_t>(units_.size()), grain(longest), [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      const Unit& unit = units_[static_cast<size_t>(u)];
      const auto next = static_cast<size_t>(u + together);
      const void* keys = next < units_.size() ? keys_from(groups_[units_[next].group], units_[next].begin) : nullptr;
      visit(groups_[unit.group], unit.begin, unit.end, keys, &far_->all[unit.first_partial]);
    }
  });
}

void Decode::merge(AttentionState* state) const {
  size_t partials = 0;
  for (const Group& group : groups_) partials = std::max(partials, group.units + 1);
  const int64_t row_bytes = static_cast<int64_t>(partials * sizeof(float)) * stride_;
  core::parallel_ranges(static_cast<int64_t>(groups_.size()), std::max<int64_t>(1, task_bytes / row_bytes),
                        [&](int64_t begin, int64_t end) {
                          const FlushDenormals flush;
                          for (int64_t g = begin; g < end; ++g) {
                            const Group& group = groups_[static_cast<size_t>(g)];
                            for (size_t r = 0; r < group.rows; ++r) merge_row(group, r, state);
                          }
                        });
}

/// out = sum over partials of 2^(max_p - max) out_p / sum over partials of 2^(max_p - max) sum_p
void Decode::merge_row(const Group& group, size_t row, AttentionState* state) const {
  const bool has_near = near_ && group.near_begin < group.near_end;
  const auto for_each_partial = [&](const auto& body) {
    if (has_near) body(near_->all[group.first_row + row]);
    for (size_t u = 0; u < group.units; ++u) body(far_->all[units_[group.first_unit + u].first_partial + row]);
  };
  constexpr double nothing = -std::numeric_limits<double>::infinity();
  const int64_t head = query_head_of(group, row);
  const double sink = sink_of(group, row);
  double max = sink;
  for_each_partial([&](const DecodePartial& partial) { max = std::max(max, partial.max); });
  double sum = max == nothing ? 0 : std::exp2(sink - max);
  std::vector<double> out(static_cast<size_t>(problem_.head_dim), 0.0);
  for_each_partial([&](const DecodePartial& partial) {
    const double weight = partial.max == nothing ? 1 : std::exp2(partial.max - max);
    sum += weight * partial.sum;
    for (size_t d = 0; d < out.size(); ++d) out[d] += weight * static_cast<double>(partial.out[d]);
  });
  // The output of a row that sees no key is zero. NaN remains NaN.
  const double share = sum == 0 ? 0 : 1 / sum;
  const Sequence& sequence = sequence_of(group);
  const int64_t query = sequence.query_begin + group.query_begin + static_cast<int64_t>(row) % group.queries;
  for (int64_t d = 0; d < problem_.head_dim; ++d) {
    const auto value = static_cast<float>(out[static_cast<size_t>(d)] * share);
    store_value(problem_.dtype, problem_.out.data, problem_.out.offset(sequence.batch, query, head) + d, value);
  }
  if (state == nullptr) return;
  const int64_t at = (sequence.batch * problem_.heads + head) * problem_.queries + query;
  state->lse.data<float>()[at] = static_cast<float>(std::numbers::ln2 * (max + std::log2(sum)));
}

void Decode::count_blocks(AttentionStats& stats) const {
  const auto blocks = [](int64_t begin, int64_t end) {
    return begin < end ? core::ceil_div(end, cache_block) - begin / cache_block : 0;
  };
  for (const Group& group : groups_) {
    stats.blocks_total += blocks(group.seen_begin, group.seen_end);
    int64_t begin = group.near_begin, end = group.near_end;
    for (size_t u = group.first_unit; u < group.first_unit + group.units; ++u) {
      begin = begin < end ? std::min(begin, units_[u].begin) : units_[u].begin;
      end = std::max(end, units_[u].end);
    }
    stats.blocks_visited += blocks(begin, end);
  }
}

Problem checked_problem(const Tensor& q, const KvCache& cache, const AttentionOptions& options, const Tensor& out) {
  constexpr const char* operation = "attention_decode";
  check_cached_options(operation, options);
  // The kernel finds the rows in the cache and converts them, so only the shape of `keys` is used.
  const core::StateOf<KvCache>& held = core::state_of(cache);
  const Tensor keys = held.as_seen(q.dtype());
  Problem problem = make_problem(operation, q, keys, keys, out, options);
  add_gates(operation, held, problem);
  const bool is_view =
      !held.has_evicted() && held.shared.end == 0 &&
      numbers_in(held.dtype) == 1;  // otherwise the rows of the heads have no common stride, or are no numbers
  check_apart(operation, "out", out, "the cache's keys", is_view ? cache.keys() : held.k);
  check_apart(operation, "out", out, "the cache's values", is_view ? cache.values() : held.v);
  if (held.shared.end > 0) {
    check_apart(operation, "out", out, "the cache's keys", held.shared.k);
    check_apart(operation, "out", out, "the cache's values", held.shared.v);
  }
  return problem;
}

/// Above this number of rows that read the same keys, the kernels with tiles are faster.
constexpr int64_t few_rows = 16;

bool supports_pages(const Problem& problem) {
  constexpr int64_t multiple = 16;
  return problem.page_rows > 0 && problem.dropout == 0 && problem.head_dim % multiple == 0 &&
         problem.pages_hold_blocks_of(cache_block) &&
         std::all_of(problem.sequences.begin(), problem.sequences.end(),
                     [&](const Sequence& s) { return s.queries * problem.group() <= few_rows; });
}

}  // namespace

const Kernel& kernels::paged_decode_kernel() {
  static constexpr Kernel kernel = {
      .supports = supports_pages,
      .forward =
          [](const Problem& problem, AttentionState* state) {
            Decode(problem, nullptr).run(state);
            if (state == nullptr) return true;
            Tensor& lse = core::state_of(state->kernel).lse;  // the same numbers, perhaps in memory of their own
            if (lse.raw() != state->lse.raw()) lse.copy_from(state->lse);
            return true;
          },
      .backward = [](const Problem&, const AttentionState&, const BiasSums&) { return false; },
  };
  return kernel;
}

void attention_decode(const Tensor& q, const KvCache& cache, const AttentionOptions& options, Tensor& out,
                      AttentionState* state) {
  if (cache.device() != Device::cpu) return decode_on_device(q, cache, options, out, state);
  const Problem problem = checked_problem(q, cache, options, out);
  if (state != nullptr) {
    *state = {};
    state->lse = Tensor::empty({problem.batch, problem.heads, problem.queries});
    core::state_of(state->kernel).lse = state->lse;
  }
  if (out.elements() == 0) return;
  Decode(problem, &core::state_of(cache)).run(state);
}

Tensor attention_decode(const Tensor& q, const KvCache& cache, const AttentionOptions& options, AttentionState* state) {
  Tensor out = Tensor::empty(q.shape(), q.dtype(), q.device());
  attention_decode(q, cache, options, out, state);
  return out;
}

}  // namespace alibi
