#include "attention/cuda/passes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/cuda/sent.h"
#include "attention/kernel_state.h"
#include "attention/skip.h"
#include "attention/skip_weights.h"
#include "core/check.h"
#include "core/parallel.h"

namespace alibi::kernels::cuda {
namespace {

/// Tasks, and how often each is likely to repeat its inner loop.
class Tasks {
 public:
  void add(size_t sequence, int64_t head, int64_t tile, int64_t part, int64_t work) {
    tasks_.push_back({static_cast<int32_t>(sequence), static_cast<int32_t>(head), static_cast<int32_t>(tile),
                      static_cast<int32_t>(part)});
    work_.push_back(work);
  }
  int64_t size() const { return static_cast<int64_t>(tasks_.size()); }

  /// The most work first; those of equal work stay in their order.
  std::vector<Task> sorted() const {
    std::vector<Task> result(tasks_.size());
    if (tasks_.empty()) return result;
    const int64_t most = *std::max_element(work_.begin(), work_.end());
    std::vector<size_t> place(static_cast<size_t>(most) + 2, 0);  // a counting sort
    for (const int64_t work : work_) ++place[static_cast<size_t>(most - work) + 1];
    for (size_t i = 1; i < place.size(); ++i) place[i] += place[i - 1];
    for (size_t i = 0; i < tasks_.size(); ++i) result[place[static_cast<size_t>(most - work_[i])]++] = tasks_[i];
    return result;
  }

 private:
  std::vector<Task> tasks_;
  std::vector<int64_t> work_;
};

/// The query rows of a tile.
struct TileOfRows {
  size_t sequence;
  int64_t head, tile;
  Range seen;  ///< key blocks
};

/// Calls use() with every tile, in the order in which the state numbers them.
template <class Use>
void for_tiles(const Problem& problem, const Use& use) {
  const int64_t rows = tile_rows(problem.head_dim);
  for (size_t i = 0; i < problem.sequences.size(); ++i) {
    const Sequence& s = problem.sequences[i];
    for (int64_t head = 0; head < problem.heads; ++head) {
      const HeadBias bias = problem.bias(s.batch, head);
      for (int64_t row = 0; row < s.queries; row += rows) {
        const int64_t position = s.query_offset + row;
        const Range seen = Problem::keys_seen(bias, position, position + std::min(rows, s.queries - row) - 1, s.keys);
        use(TileOfRows{i, head, row / rows, blocks_of(seen, block_keys)});
      }
    }
  }
}

/// Of the forward pass, before it is known what tiles visit.
Tasks query_tasks(const Problem& problem, int64_t& blocks_seen) {
  const int64_t rows = tile_rows(problem.head_dim);
  Tasks tasks;
  blocks_seen = 0;
  for_tiles(problem, [&](const TileOfRows& tile) {
    const Sequence& s = problem.sequences[tile.sequence];
    const int64_t row = tile.tile * rows;
    const int64_t keys = likely_keys(problem, s, tile.head, row, std::min(rows, s.queries - row));
    tasks.add(tile.sequence, tile.head, tile.tile, 0, std::min(keys / block_keys, tile.seen.size()));
    blocks_seen += tile.seen.size();
  });
  return tasks;
}

/// Every block of keys of every key/value head.
std::vector<Task> key_block_tasks(const Problem& problem) {
  Tasks tasks;
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    for (int64_t head = 0; head < problem.kv_heads; ++head) {
      const int64_t blocks = ceil_div(problem.sequences[s].keys, int64_t{block_keys});
      for (int64_t block = 0; block < blocks; ++block) tasks.add(s, head, block, 0, 0);
    }
  }
  return tasks.sorted();
}

/// The work of the backward pass, by what each tile visited.
struct BackwardPlan {
  BackwardPlan(const Problem& problem, const KernelState::State& state) {
    const int64_t rows = tile_rows(problem.head_dim);
    reach.assign(problem.sequences.size() * static_cast<size_t>(problem.heads), {0, -1});
    const BlockIndex blocks(problem, BlockIndex::Of::keys, block_keys);
    // By how much more or less the tiles of a block of keys are than those of the block before.
    std::vector<int64_t> change(static_cast<size_t>(blocks.size()) + 1, 0);
    int64_t number = 0;
    for_tiles(problem, [&](const TileOfRows& tile) {
      const Range visited = state.visited(KernelState::State::Kernel::cuda, number++, tile.seen);
      queries.add(tile.sequence, tile.head, tile.tile, 0, visited.size());
      if (visited.empty()) return;
      const auto of_block = [&](int64_t block) { return static_cast<int32_t>(tile.tile - block * block_keys / rows); };
      Reach& all = reach[tile.sequence * static_cast<size_t>(problem.heads) + static_cast<size_t>(tile.head)];
      const Reach own = {of_block(visited.end - 1), of_block(visited.begin)};
      all = all.last < all.first ? own : Reach{std::min(all.first, own.first), std::max(all.last, own.last)};
      const int64_t first = blocks.at(tile.sequence, tile.head / problem.group(), 0);
      ++change[static_cast<size_t>(first + visited.begin)];
      --change[static_cast<size_t>(first + visited.end)];
    });
    int64_t tiles = 0;
    for (size_t s = 0; s < problem.sequences.size(); ++s) {
      for (int64_t head = 0; head < problem.kv_heads; ++head) {
        for (int64_t block = 0; block < blocks.blocks(s); ++block) {
          tiles += change[static_cast<size_t>(blocks.at(s, head, block))];
          for (int64_t part = 0; part < key_parts(problem.head_dim); ++part) keys.add(s, head, block, part, tiles);
        }
      }
    }
  }

  Tasks queries, keys;
  std::vector<Reach> reach;  ///< [sequences][heads]
};

/// The tables of the skip rule; they live as long as this.
class BoundTables {
 public:
  BoundTables(const Machine& machine, const Problem& problem, int64_t entries)
      : sequences_(static_cast<int64_t>(problem.sequences.size())),
        before_(machine, entries * problem.heads),
        from_(machine, problem.causal ? 0 : entries * problem.heads),
        numbers_(machine, sequences_ * (problem.kv_heads * (problem.head_dim + 1) + problem.heads)) {
    tables_.before = before_.get();
    tables_.from = problem.causal ? nullptr : from_.get();
    tables_.centres = numbers_.get();
    tables_.centre_norms = tables_.centres + sequences_ * problem.kv_heads * problem.head_dim;
    tables_.lengths = tables_.centre_norms + sequences_ * problem.kv_heads;
  }
  const Bounds& tables() const { return tables_; }

  void fill(const Machine& machine, const Problem& problem, const Call& call, const Task* tasks,
            int64_t task_count) const {
    const BoundsArguments arguments = {.call = call, .bounds = tables_, .tasks = tasks};
    const Launches& launches = machine.launches();
    void* const stream = machine.stream();
    const Type type = type_of(problem.dtype);
    machine.check_launch("centres", launches.centres(arguments, sequences_ * problem.kv_heads, type, stream));
    machine.check_launch("measure", launches.measure(arguments, task_count, type, stream));
    machine.check_launch("accumulate", launches.accumulate(arguments, sequences_ * problem.heads, type, stream));
  }

 private:
  int64_t sequences_;
  Made<KeyBound> before_, from_;
  Made<float> numbers_;
  Bounds tables_ = {};
};

}  // namespace

bool asks_skip_rule(const Problem& problem) {
  // Below that a weight that may be skipped could be a denormal number, which counts as zero.
  constexpr float least_tolerance = 0x1p-60f;
  return skip_rule_applies(problem) && problem.tolerance >= least_tolerance;
}

bool supports(const Problem& problem) {
  constexpr int64_t most_columns = 256, most_blocks = std::numeric_limits<int32_t>::max();
  constexpr float least_scale = 0x1p-60f, most_scale = 0x1p60f;
  const auto fits = [&](const TensorView& view) {
    constexpr int64_t values = 8;  // of 16 bytes, by which rows are copied
    return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.batch_stride % values == 0 &&
           view.row_stride % values == 0 && view.head_stride % values == 0;
  };
  const float scale = std::abs(problem.scale);
  const int64_t tasks = problem.batch * problem.heads * (problem.queries + problem.keys + 1);
  return (problem.dtype == DType::bfloat16 || problem.dtype == DType::float16) && problem.head_dim % 8 == 0 &&
         problem.head_dim <= most_columns && problem.dropout == 0 && problem.distance_table.empty() &&
         scale >= least_scale && scale <= most_scale && tasks <= most_blocks && fits(problem.q) && fits(problem.k) &&
         fits(problem.v) && fits(problem.out) && fits(problem.dout) && fits(problem.dq) && fits(problem.dk) &&
         fits(problem.dv);
}

void check_device(const Machine& machine, const Problem& problem) {
  const int current = machine.device();
  for (const auto& [name, view] : {std::pair{"q", &problem.q},
                                   {"k", &problem.k},
                                   {"v", &problem.v},
                                   {"out", &problem.out},
                                   {"dout", &problem.dout},
                                   {"dq", &problem.dq},
                                   {"dk", &problem.dk},
                                   {"dv", &problem.dv}}) {
    const int device = view->data != nullptr ? machine.device_of(view->data) : -1;
    check(device == -1 || device == current,
          "[attention on cuda] {} lies on GPU {}, but GPU {} is current: call cudaSetDevice({}) first", name, device,
          current, device);
  }
}

bool forward(const Machine& machine, const Problem& problem, AttentionState* state) {
  check_device(machine, problem);
  Sent sent;
  const SentCall call(problem, sent);
  int64_t blocks_seen = 0;
  const Tasks tasks = query_tasks(problem, blocks_seen);
  const size_t tasks_at = sent.add(tasks.sorted());
  const bool skips = asks_skip_rule(problem);
  const std::vector<Task> key_tasks = skips ? key_block_tasks(problem) : std::vector<Task>();
  const size_t key_tasks_at = sent.add(key_tasks);
  sent.send(machine);

  const int64_t tiles = tasks.size();
  const bool notes = state != nullptr && skips;
  const Made<int32_t> visited(machine, notes ? 2 * tiles : 0);
  const BoundTables bounds(machine, problem, skips ? call.bounds() : 0);
  ForwardArguments arguments = {};
  arguments.call = call.call(sent);
  arguments.out = rows_of(problem.out);
  arguments.tasks = sent.at<Task>(tasks_at);
  if (skips) {
    bounds.fill(machine, problem, arguments.call, sent.at<Task>(key_tasks_at), static_cast<int64_t>(key_tasks.size()));
    arguments.bounds = bounds.tables();
    arguments.budget = skip_budget(problem);
  }
  if (state != nullptr) {
    arguments.lse = static_cast<float*>(state->lse.raw());
    arguments.near_lse = static_cast<float*>(state->kernel.state().lse.raw());
  }
  if (notes) {
    arguments.first_block = visited.get();
    arguments.last_block = visited.get() + tiles;
  }
  machine.check_launch("forward",
                       machine.launches().forward(arguments, tiles, type_of(problem.dtype), machine.stream()));
  if (state == nullptr) return true;
  state->stats.blocks_total = state->stats.blocks_visited = blocks_seen;
  if (!notes) return true;
  KernelState::State& kept = state->kernel.state();
  kept.begin(KernelState::State::Kernel::cuda, tiles);
  std::vector<int32_t> both(static_cast<size_t>(2 * tiles));
  machine.copy_to_host(both.data(), visited.get(), both.size() * sizeof(int32_t));
  std::copy_n(both.begin(), tiles, kept.first_block.begin());
  std::copy_n(both.begin() + tiles, tiles, kept.last_block.begin());
  state->stats.blocks_visited = 0;
  for (size_t i = 0; i < kept.first_block.size(); ++i) {
    state->stats.blocks_visited += kept.last_block[i] - kept.first_block[i];
  }
  return true;
}

bool backward(const Machine& machine, const Problem& problem, const AttentionState& state, const BiasSums& sums) {
  check_device(machine, problem);
  const KernelState::State& kept = state.kernel.state();
  const BlockIndex tiles(problem, BlockIndex::Of::queries, tile_rows(problem.head_dim));
  check_blocks(kept, KernelState::State::Kernel::cuda, tiles.size());
  Sent sent;
  const SentCall call(problem, sent);
  const BackwardPlan plan(problem, kept);
  const size_t queries_at = sent.add(plan.queries.sorted()), keys_at = sent.add(plan.keys.sorted());
  const size_t reach_at = sent.add(plan.reach);
  const bool known = kept.is_of(KernelState::State::Kernel::cuda);
  const size_t first_at = sent.add(kept.first_block), last_at = sent.add(kept.last_block);
  sent.send(machine);

  const int64_t rows = problem.batch * problem.heads * problem.queries;
  const Made<RowTerms> terms(machine, rows);
  const Made<double> slope_sums(machine, sums.dslopes != nullptr ? tiles.size() : 0);
  BackwardArguments arguments = {.call = call.call(sent),
                                 .out = rows_of(problem.out),
                                 .dout = rows_of(problem.dout),
                                 .dq = rows_of(problem.dq),
                                 .dk = rows_of(problem.dk),
                                 .dv = rows_of(problem.dv),
                                 .tasks = sent.at<Task>(queries_at),
                                 .near_lse = static_cast<const float*>(kept.lse.raw()),
                                 .terms = terms.get(),
                                 .first_block = known ? sent.at<int32_t>(first_at) : nullptr,
                                 .last_block = known ? sent.at<int32_t>(last_at) : nullptr,
                                 .slope_sums = sums.dslopes != nullptr ? slope_sums.get() : nullptr,
                                 .dslopes = sums.dslopes,
                                 .reach = sent.at<Reach>(reach_at),
                                 .rows = rows,
                                 .sequences = static_cast<int32_t>(problem.sequences.size()),
                                 .slopes_per_batch = problem.slopes_per_batch,
                                 .slopes_symmetric = problem.slopes_symmetric};
  const Launches& launches = machine.launches();
  void* const stream = machine.stream();
  const Type type = type_of(problem.dtype);
  machine.check_launch("row_terms", launches.row_terms(arguments, rows, type, stream));
  machine.check_launch("query_gradients", launches.query_gradients(arguments, plan.queries.size(), type, stream));
  if (sums.dslopes != nullptr) {
    const int64_t slopes = problem.slopes_per_batch ? problem.batch * problem.heads : problem.heads;
    machine.check_launch("add_slopes", launches.add_slopes(arguments, slopes, type, stream));
  }
  arguments.tasks = sent.at<Task>(keys_at);
  machine.check_launch("key_gradients", launches.key_gradients(arguments, plan.keys.size(), type, stream));
  return true;
}

}  // namespace alibi::kernels::cuda
