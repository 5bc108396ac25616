#include "attention/cuda/passes.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "attention/cuda/sent.h"
#include "attention/kernel_state.h"
#include "attention/skip/norms.h"
#include "attention/skip/weights.h"
#include "core/check.h"
#include "core/parallel.h"

namespace alibi::kernels::cuda {
namespace {

using namespace std::literals;

/// Sums the gates of the call for its other kernels. The result owns the sums.
Made<GateBlock> made_gates(const Machine& machine, const Problem& problem, const SentCall& sent, Call& call) {
  const Made<GateBlock> blocks(machine, problem.log_decay.defined() ? sent.bounds() * problem.heads : 0);
  if (!problem.log_decay.defined()) return blocks;
  sum_gates(machine, call, problem.log_decay, blocks.get(), 0);
  call.gates = blocks.get();
  return blocks;
}

/// Owns the tables of the skip rule.
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

  void fill(const Machine& machine, const Problem& problem, const Call& call) const {
    const BoundsArguments arguments = {.call = call, .bounds = tables_};
    const Launches& launches = machine.launches(form_of(problem));
    void* const stream = machine.stream();
    const Type type = type_of(problem.dtype);
    machine.check_launch("centres", launches.centres(arguments, sequences_ * problem.kv_heads, type, stream));
    machine.check_launch("measure", launches.measure(arguments, problem.kv_heads * call.key_units, type, stream));
    machine.check_launch("accumulate", launches.accumulate(arguments, sequences_ * problem.heads, type, stream));
  }

 private:
  int64_t sequences_;
  Made<KeyBound> before_, from_;
  Made<float> numbers_;
  Bounds tables_ = {};
};

/// The tensors of a call and their names. Those of the other pass have no data.
std::array<std::pair<const char*, const TensorView*>, 8> views_of(const Problem& problem) {
  return {{{"q", &problem.q},
           {"k", &problem.k},
           {"v", &problem.v},
           {"out", &problem.out},
           {"dout", &problem.dout},
           {"dq", &problem.dq},
           {"dk", &problem.dk},
           {"dv", &problem.dv}}};
}

}  // namespace

void sum_gates(const Machine& machine, const Call& call, const Tensor& log_decay, GateBlock* blocks, int64_t first) {
  const GateArguments arguments = {.call = call,
                                   .log_decay = static_cast<const float*>(log_decay.raw()),
                                   .batch_stride = log_decay.stride(0),
                                   .key_stride = log_decay.stride(1),
                                   .head_stride = log_decay.stride(2),
                                   .blocks = blocks,
                                   .first_block = static_cast<int32_t>(first)};
  const Launches& launches = machine.launches(Form::gates);
  const int64_t heads = call.heads;
  void* const stream = machine.stream();
  machine.check_launch("sum_gates", launches.sum_gates(arguments, heads * call.key_units, Type::bfloat16, stream));
  machine.check_launch("sum_gate_blocks",
                       launches.sum_gate_blocks(arguments, heads * call.sequence_count, Type::bfloat16, stream));
}

bool asks_skip_rule(const Problem& problem) {
  // Below this tolerance, a weight that the rule may skip could be denormal, and denormals are flushed to zero.
  constexpr float min_tolerance = 0x1p-60f;
  return skip_rule_applies(problem) && problem.tolerance >= min_tolerance;
}

std::string refusal(const Problem& problem) {
  constexpr int64_t max_columns = 256, max_blocks = std::numeric_limits<int32_t>::max();
  constexpr float min_scale = 0x1p-60f, max_scale = 0x1p60f;
  if (problem.softcap != 0) return fmt::format("softcap is {}, expected 0", problem.softcap);
  if (problem.page_rows != 0) return "block_table is set, expected contiguous keys";
  if (problem.window_before != problem.window_after) return "sliding_window_after is set, expected equal windows";
  if (problem.biases->slopes_per_sequence && std::ssize(problem.sequences) != problem.batch) {
    return "alibi_slopes has slopes of each packed sequence, expected those of the heads";
  }
  if (problem.dtype != DType::bfloat16 && problem.dtype != DType::float16) {
    return fmt::format("q is {}, expected bfloat16 or float16", name_of(problem.dtype));
  }
  if (problem.head_dim % 8 != 0 || problem.head_dim > max_columns) {
    return fmt::format("head_dim is {}, expected a multiple of 8 up to {}", problem.head_dim, max_columns);
  }
  if (problem.dropout != 0) return fmt::format("dropout_p is {}, expected 0", problem.dropout);
  if (problem.has_table()) return "the bias is a table, expected slopes or none";
  const float scale = std::abs(problem.scale);
  if (!(scale >= min_scale && scale <= max_scale)) {
    return fmt::format("softmax_scale is {}, expected an absolute value from 2^-60 to 2^60", problem.scale);
  }
  if (problem.batch * problem.heads * (problem.queries + problem.keys + 1) > max_blocks) {
    return fmt::format("batch * heads * (queries + keys + 1) is more than {}", max_blocks);
  }
  for (const auto& [name, view] : views_of(problem)) {
    // Copies need rows that begin at a multiple of 16 bytes. The stride of an axis with one element is never used.
    constexpr int64_t values = 8;
    const bool of_keys = name[0] == 'k' || name[0] == 'v' || name == "dk"sv || name == "dv"sv;
    const int64_t rows = of_keys ? problem.keys : problem.queries, heads = of_keys ? problem.kv_heads : problem.heads;
    if (reinterpret_cast<uintptr_t>(view->data) % 16 != 0 || (problem.batch > 1 && view->batch_stride % values != 0) ||
        (rows > 1 && view->row_stride % values != 0) || (heads > 1 && view->head_stride % values != 0)) {
      return fmt::format("{} has rows that do not begin at a multiple of 16 bytes; make it contiguous", name);
    }
  }
  return {};
}

void check_device(const Machine& machine, const Problem& problem) {
  const int current = machine.device();
  for (const auto& [name, view] : views_of(problem)) {
    const int device = view->data != nullptr ? machine.device_of(view->data) : -1;
    check(device == -1 || device == current,
          "[attention on cuda] {} is on GPU {}, but the current GPU is {}; call cudaSetDevice({}) first", name, device,
          current, device);
  }
}

bool forward(const Machine& machine, const Problem& problem, AttentionState* state) {
  check_device(machine, problem);
  check(state == nullptr || core::state_of(state->kernel).caller_blocks.defined() || !machine.capturing(),
        "[attention] a call with a state cannot be captured into a CUDA graph, because the graph would own the "
        "state's memory; use KernelState::in_memory()");
  Sent sent;
  const SentCall call(problem, sent);
  sent.send(machine);

  const bool skips = asks_skip_rule(problem);
  const BoundTables bounds(machine, problem, skips ? call.bounds() : 0);
  ForwardArguments arguments = {};
  arguments.call = call.call(sent);
  const Made<GateBlock> gates = made_gates(machine, problem, call, arguments.call);
  arguments.out = rows_of(problem.out);
  if (skips) {
    bounds.fill(machine, problem, arguments.call);
    arguments.bounds = bounds.tables();
    arguments.budget = skip_budget(problem);
  }
  if (state != nullptr) {
    core::StateOf<KernelState>& kept = core::state_of(state->kernel);
    const bool in_caller_memory = kept.caller_blocks.defined();
    if (!in_caller_memory) {
      kept.device_blocks = Tensor::empty({3, call.tiles()}, DType::int32, problem.device);
      kept.kernel = skips ? core::StateOf<KernelState>::Kernel::cuda : core::StateOf<KernelState>::Kernel::none;
    }
    if (!in_caller_memory || skips) {
      const Tensor blocks = in_caller_memory ? caller_blocks_of(kept, call.tiles()) : kept.device_blocks;
      arguments.first_block = static_cast<int32_t*>(blocks.raw());
      arguments.last_block = arguments.first_block + call.tiles();
      arguments.seen = in_caller_memory ? nullptr : arguments.last_block + call.tiles();
    }
    arguments.lse = static_cast<float*>(state->lse.raw());
    arguments.lse_from_nearest = static_cast<float*>(kept.lse.raw());
    state->stats = {.blocks_visited = -1, .blocks_total = -1};
  }
  machine.check_launch(
      "forward",
      machine.launches(form_of(problem)).forward(arguments, call.tiles(), type_of(problem.dtype), machine.stream()));
  return true;
}

bool backward(const Machine& machine, const Problem& problem, const AttentionState& state, const BiasSums& sums) {
  check_device(machine, problem);
  const core::StateOf<KernelState>& kept = core::state_of(state.kernel);
  Sent sent;
  const SentCall call(problem, sent);
  check_blocks(kept, core::StateOf<KernelState>::Kernel::cuda, call.tiles());
  const size_t first_at = sent.add(kept.first_block), last_at = sent.add(kept.last_block);
  sent.send(machine);
  const int32_t *first_block = nullptr, *last_block = nullptr;  // null means that every block is visited
  if (kept.caller_blocks.defined()) {
    if (asks_skip_rule(problem)) first_block = static_cast<const int32_t*>(caller_blocks_of(kept, call.tiles()).raw());
    last_block = first_block != nullptr ? first_block + call.tiles() : nullptr;
  } else if (kept.kernel == core::StateOf<KernelState>::Kernel::cuda && kept.device_blocks.defined()) {
    first_block = static_cast<const int32_t*>(kept.device_blocks.raw());
    last_block = first_block + call.tiles();
  } else if (kept.is_of(core::StateOf<KernelState>::Kernel::cuda)) {  // the state was restored
    first_block = sent.at<int32_t>(first_at);
    last_block = sent.at<int32_t>(last_at);
  }

  const int64_t rows = problem.batch * problem.heads * problem.queries;
  const Made<RowTerms> terms(machine, rows);
  const Made<double> slope_sums(machine, sums.dslopes != nullptr ? call.tiles() : 0);
  const auto sequences = static_cast<int64_t>(problem.sequences.size());
  const Made<VisitingTiles> visiting(machine, sequences * problem.heads);
  // Uses one kernel for all gradients if possible.
  const int columns = problem.head_dim <= 32 ? 32 : problem.head_dim <= 64 ? 64 : 128;
  const Form form = form_of(problem);
  const int both_rows = problem.head_dim <= columns && sums.dslopes == nullptr && form == Form::slopes
                            ? both_rows_for(columns, machine.shared_bytes())
                            : 0;
  const bool both = both_rows > 0;
  const int64_t parts = both ? call.tiles() * (tile_rows(problem.head_dim) / both_rows) : 0;
  const Made<float> dq_sums(machine, parts * both_rows * columns);
  const Made<int32_t> counters(machine, both ? parts + 1 : 0);
  const bool of_gates = problem.dlog_decay != nullptr;
  const Made<float> row_sums(machine, of_gates ? rows : 0);
  const Made<float> key_sums(machine, of_gates ? problem.batch * problem.heads * problem.keys : 0);
  BackwardArguments arguments = {.call = call.call(sent),
                                 .out = rows_of(problem.out),
                                 .dout = rows_of(problem.dout),
                                 .dq = rows_of(problem.dq),
                                 .dk = rows_of(problem.dk),
                                 .dv = rows_of(problem.dv),
                                 .lse_from_nearest = static_cast<const float*>(kept.lse.raw()),
                                 .terms = terms.get(),
                                 .first_block = first_block,
                                 .last_block = last_block,
                                 .slope_sums = sums.dslopes != nullptr ? slope_sums.get() : nullptr,
                                 .dslopes = sums.dslopes,
                                 .dsinks = sums.dsinks,
                                 .visiting = visiting.get(),
                                 .row_sums = row_sums.get(),
                                 .key_sums = key_sums.get(),
                                 .dlog_decay = problem.dlog_decay,
                                 .keys = problem.keys,
                                 .dq_sums = dq_sums.get(),
                                 .counters = counters.get(),
                                 .ticket = both ? counters.get() + parts : nullptr,
                                 .both_rows = both_rows,
                                 .rows = rows,
                                 .slopes_per_batch = problem.biases->slopes_per_sequence,
                                 .slopes_symmetric = problem.biases->slopes_symmetric};
  const Made<GateBlock> gates = made_gates(machine, problem, call, arguments.call);
  const Launches& launches = machine.launches(form);
  void* const stream = machine.stream();
  const Type type = type_of(problem.dtype);
  machine.check_launch("row_terms", launches.row_terms(arguments, rows, type, stream));
  if (sums.dsinks != nullptr) {
    machine.check_launch("add_sinks", launches.add_sinks(arguments, problem.heads, type, stream));
  }
  machine.check_launch("visiting_tiles", launches.visiting_tiles(arguments, sequences * problem.heads, type, stream));
  const int64_t units = problem.kv_heads * arguments.call.key_units;
  if (both) {
    machine.check_launch("both_gradients", launches.both_gradients(
                                               arguments, problem.kv_heads * arguments.call.both_units, type, stream));
    return true;
  }
  machine.check_launch("query_gradients", launches.query_gradients(arguments, call.tiles(), type, stream));
  if (sums.dslopes != nullptr) {
    machine.check_launch("add_slopes", launches.add_slopes(arguments, problem.dslopes_size(), type, stream));
  }
  machine.check_launch("key_gradients",
                       launches.key_gradients(arguments, units * key_parts(problem.head_dim), type, stream));
  if (of_gates) {
    machine.check_launch("add_gates", launches.add_gates(arguments, sequences * problem.heads, type, stream));
  }
  return true;
}

}  // namespace alibi::kernels::cuda
