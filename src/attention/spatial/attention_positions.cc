// Checks of the arguments of attention_positions().
#include "alibi/attention_positions.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "attention/kernel.h"
#include "attention/kernel_state.h"
#include "attention/skip/penalties.h"
#include "attention/spatial/order.h"
#include "attention/spatial/spatial.h"
#include "attention/vector/tasks.h"
#include "attention/workspace.h"
#include "core/access.h"
#include "core/check.h"
#include "core/isa.h"
#include "core/parallel.h"

namespace alibi {
namespace {

using kernels::Problem;
using kernels::Range;
using kernels::Sequence;

void check_positions(const char* operation, const char* name, const Tensor& positions, int64_t batch, int64_t length,
                     const char* of) {
  const bool shaped = positions.defined() && positions.axes() == 3 &&
                      (positions.size(0) == batch || positions.size(0) == 1) && positions.size(1) == length &&
                      positions.size(2) >= 1 && positions.size(2) <= kernels::max_dims;
  check_usage(shaped, "[{}] {} has shape {}, expected [{} or 1, {}, 1 to {}]: a point for each row of {}", operation,
              name, positions.shape(), batch, length, kernels::max_dims, of);
  check_usage(positions.dtype() == DType::float32 || positions.dtype() == DType::int32,
              "[{}] {} is {}, expected float32 or int32", operation, name, name_of(positions.dtype()));
  check_usage(positions.contiguous() && positions.device() == Device::cpu,
              "[{}] {} is not contiguous memory of the CPU", operation, name);
}

/// The rows [begin, begin + count) of a batch entry of positions.
struct PointsOf {
  const Tensor* positions = nullptr;
  int64_t batch = 0, begin = 0, count = 0, leading = 0;

  size_t dims() const { return static_cast<size_t>(positions->size(2)); }
  template <class T>
  const T* at(int64_t row) const {
    return positions->data<T>() + (batch * positions->size(1) + begin + row) * positions->size(2);
  }
  bool operator==(const PointsOf&) const = default;

  /// Throws Error if a coordinate cannot be used.
  std::vector<float> read(const char* operation, const char* name) const {
    constexpr float most = 0x1p60f;
    std::vector<float> points(static_cast<size_t>(count) * dims(), 0.0f);
    for (int64_t row = leading; row < count; ++row) {
      for (size_t axis = 0; axis < dims(); ++axis) {
        const float x = at<float>(row)[axis];
        check_usage(std::abs(x) <= most, "[{}] {}[{}, {}, {}] is {}, expected a finite number of at most 2^60",
                    operation, name, batch, begin + row, axis, x);
        points[static_cast<size_t>(row) * dims() + axis] = x;
      }
    }
    return points;
  }
  std::vector<float> read_from(const std::vector<int64_t>& origin) const {
    std::vector<float> points(static_cast<size_t>(count) * dims(), 0.0f);
    for (int64_t row = leading; row < count; ++row) {
      for (size_t axis = 0; axis < dims(); ++axis) {
        points[static_cast<size_t>(row) * dims() + axis] =
            static_cast<float>(static_cast<int64_t>(at<int32_t>(row)[axis]) - origin[axis]);
      }
    }
    return points;
  }
  void lower(std::vector<int64_t>& origin) const {
    for (int64_t row = leading; row < count; ++row) {
      for (size_t axis = 0; axis < dims(); ++axis) {
        origin[axis] = std::min(origin[axis], static_cast<int64_t>(at<int32_t>(row)[axis]));
      }
    }
  }
};

/// Sequences with equal points share their orders.
struct OrderedPoints {
  PointsOf queries, keys;
  std::shared_ptr<const kernels::Coordinates> points = {};

  void order(const char* operation, bool manhattan) {
    std::vector<float> of_queries, of_keys;
    if (queries.positions->dtype() == DType::float32) {
      of_queries = queries.read(operation, "positions_q");
      of_keys = keys.read(operation, keys.positions == queries.positions ? "positions_q" : "positions_k");
    } else {
      std::vector<int64_t> origin(queries.dims(), std::numeric_limits<int32_t>::max());
      queries.lower(origin);
      keys.lower(origin);
      of_queries = queries.read_from(origin);
      of_keys = keys.read_from(origin);
    }
    const auto dims = static_cast<int>(queries.dims());
    points = std::make_shared<const kernels::Coordinates>(
        kernels::Coordinates{.queries = kernels::make_order(of_queries, dims, queries.leading, kernels::query_rows),
                             .keys = kernels::make_order(of_keys, dims, keys.leading, kernels::key_rows),
                             .manhattan = manhattan});
  }
};

/// Leaves out the rows behind the used ones.
void use_first_rows(const char* operation, const char* name, const std::vector<int32_t>& used, int64_t Sequence::*count,
                    Problem& problem) {
  std::vector<Sequence>& sequences = problem.sequences;
  if (used.empty()) return;
  check_usage(used.size() == sequences.size(), "[{}] {} has {} values, expected {}, one for each sequence", operation,
              name, used.size(), sequences.size());
  for (size_t s = 0; s < used.size(); ++s) {
    const int64_t length = sequences[s].*count;
    check_usage(used[s] >= 0 && used[s] <= length, "[{}] {}[{}] is {}, expected 0 to {}, the length of the sequence",
                operation, name, s, used[s], length);
    sequences[s].*count = used[s];
  }
}

/// Fills the rows [begin, end) with zeros.
void zero_rows(const Problem& problem, const kernels::TensorView& view, int64_t batch, const Range& rows,
               int64_t heads) {
  const auto size = static_cast<int64_t>(size_of(problem.dtype));
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t at = batch * view.batch_stride + row * view.row_stride + head * view.head_stride;
      std::memset(static_cast<char*>(view.data) + at * size, 0, static_cast<size_t>(problem.head_dim * size));
    }
  }
}

/// Calls visit(batch, rows) for the rows behind the used ones, up to the next sequence.
template <class Visit>
void for_padding(const Problem& problem, int64_t Sequence::*first, int64_t Sequence::*count, int64_t length,
                 const Visit& visit) {
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    const Sequence& sequence = problem.sequences[s];
    const bool last = s + 1 == problem.sequences.size() || problem.sequences[s + 1].batch != sequence.batch;
    const int64_t end = last ? length : problem.sequences[s + 1].*first;
    visit(sequence.batch, Range{sequence.*first + sequence.*count, end});
  }
}

/// The same state in the form of the vector kernel: what is missing in the log-sum-exps, and for each block of queries
/// from which step on key blocks are not visited. Nothing is skipped unless the kernel notes it.
AttentionState kernel_state(const Problem& problem, const AttentionPositionsState& state) {
  using State = core::StateOf<KernelState>;
  AttentionState result;
  result.lse = state.lse;
  State& kernel = core::state_of(result.kernel);
  kernel.lse = state.lse_low;
  const kernels::BlockIndex blocks(problem, kernels::BlockIndex::Of::queries, kernels::query_rows);
  kernel.begin(State::Kernel::vector, blocks.size());
  std::ranges::fill(kernel.last_block, kernels::penalty_steps);
  return result;
}

/// Calls run() as the kernels for counted distances are called.
template <class Run>
void on_cpu(const Run& run) {
  core::prepare_dispatch();
  const kernels::FlushDenormals flush;
  run();
}

}  // namespace

namespace kernels {

Problem make_spatial_problem(const char* operation, const Tensor& q, const Tensor& k, const Tensor& v,
                             const AttentionPositions& positions, const AttentionPositionsOptions& options,
                             const Tensor& out) {
  AttentionOptions counted;
  counted.alibi_slopes = options.alibi_slopes;
  counted.softmax_scale = options.softmax_scale;
  counted.tolerance = options.tolerance;
  counted.cu_seqlens_q = options.cu_seqlens_q;
  counted.cu_seqlens_k = options.cu_seqlens_k;
  Problem problem = make_problem(operation, q, k, v, out, counted);
  check_usage(problem.device == Device::cpu, "[{}] q is on '{}', expected '{}', the only device of this operation",
              operation, name_of(problem.device), name_of(Device::cpu));
  check_usage(problem.dtype != DType::float16, "[{}] q is {}, expected float32 or bfloat16", operation,
              name_of(problem.dtype));
  for (size_t i = 0; i < options.alibi_slopes.size(); ++i) {
    check_usage(std::isfinite(options.alibi_slopes[i]), "[{}] alibi_slopes[{}] is {}, expected a finite number",
                operation, i, options.alibi_slopes[i]);
  }
  check_usage(options.leading >= 0, "[{}] leading is {}, expected >= 0", operation, options.leading);
  check_usage(options.distance == Distance::euclidean || options.distance == Distance::manhattan,
              "[{}] distance is {}, expected Distance::euclidean or Distance::manhattan", operation,
              static_cast<int>(options.distance));
  const Tensor& of_keys = positions.k.defined() ? positions.k : positions.q;
  check_positions(operation, "positions_q", positions.q, problem.batch, problem.queries, "q");
  check_positions(operation, positions.k.defined() ? "positions_k" : "positions_q", of_keys, problem.batch,
                  problem.keys, "k");
  check_usage(of_keys.dtype() == positions.q.dtype() && of_keys.size(2) == positions.q.size(2),
              "[{}] positions_k has {} dimensions of {}, expected {} of {} like positions_q", operation,
              of_keys.size(2), name_of(of_keys.dtype()), positions.q.size(2), name_of(positions.q.dtype()));
  use_first_rows(operation, "seqused_q", options.seqused_q, &Sequence::queries, problem);
  use_first_rows(operation, "seqused_k", options.seqused_k, &Sequence::keys, problem);
  std::vector<OrderedPoints> layouts;
  std::vector<size_t> layout_of;
  for (Sequence& sequence : problem.sequences) {
    const auto points = [&](const Tensor& tensor, int64_t begin, int64_t count) {
      const int64_t batch = tensor.size(0) == 1 ? 0 : sequence.batch;
      return PointsOf{&tensor, batch, begin, count, std::min(options.leading, count)};
    };
    OrderedPoints layout{.queries = points(positions.q, sequence.query_begin, sequence.queries),
                         .keys = points(of_keys, sequence.key_begin, sequence.keys)};
    sequence.query_offset = 0;  // blocks are numbered in the order of the tokens
    size_t at = 0;
    while (at < layouts.size() && !(layouts[at].queries == layout.queries && layouts[at].keys == layout.keys)) ++at;
    if (at == layouts.size()) layouts.push_back(std::move(layout));
    layout_of.push_back(at);
  }
  core::parallel_for(static_cast<int64_t>(layouts.size()), [&](int64_t i) {
    layouts[static_cast<size_t>(i)].order(operation, options.distance == Distance::manhattan);
  });
  for (const size_t at : layout_of) problem.coordinates.push_back(layouts[at].points);
  return problem;
}

}  // namespace kernels

int64_t AttentionPositionsState::words(int64_t batch, int64_t queries, int64_t heads,
                                       const AttentionPositionsOptions& options) {
  // Each sequence has at most one incomplete block of leading tokens and one of others.
  const int64_t sequences =
      options.cu_seqlens_q.empty() ? batch : static_cast<int64_t>(options.cu_seqlens_q.size()) - 1;
  return heads * (batch * queries / kernels::query_rows + 2 * sequences);
}

void attention_positions(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionPositions& positions,
                         const AttentionPositionsOptions& options, Tensor& out, AttentionPositionsState* state) {
  constexpr const char* operation = "attention_positions";
  const Problem problem = kernels::make_spatial_problem(operation, q, k, v, positions, options, out);
  const std::pair<const char*, const Tensor*> inputs[] = {
      {"q", &q}, {"k", &k}, {"v", &v}, {"positions_q", &positions.q}, {"positions_k", &positions.k}};
  for (const auto& [name, input] : inputs) {
    kernels::check_apart(operation, "out", out, name, *input);
  }
  if (state != nullptr) {
    const int64_t words = AttentionPositionsState::words(problem.batch, problem.queries, problem.heads, options);
    *state = {.lse = Tensor::empty({problem.batch, problem.heads, problem.queries}),
              .lse_low = Tensor::empty({problem.batch, problem.heads, problem.queries}),
              .stops = Tensor({words}, DType::int32),
              .stats = {}};
  }
  for_padding(problem, &Sequence::query_begin, &Sequence::queries, problem.queries,
              [&](int64_t batch, const Range& rows) {
                zero_rows(problem, problem.out, batch, rows, problem.heads);
                for (int64_t head = 0; state != nullptr && head < problem.heads; ++head) {
                  const int64_t at = (batch * problem.heads + head) * problem.queries + rows.begin;
                  std::fill_n(state->lse.data<float>() + at, rows.size(), -std::numeric_limits<float>::infinity());
                  std::fill_n(state->lse_low.data<float>() + at, rows.size(), 0.0f);
                }
              });
  if (out.elements() == 0) return;
  AttentionState of_kernel = state != nullptr ? kernel_state(problem, *state) : AttentionState();
  on_cpu([&] { kernels::vector_kernel().forward(problem, state != nullptr ? &of_kernel : nullptr); });
  if (state == nullptr) return;
  state->stats = of_kernel.stats;
  std::ranges::copy(core::state_of(of_kernel.kernel).last_block, state->stops.data<int32_t>());
}

Tensor attention_positions(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionPositions& positions,
                           const AttentionPositionsOptions& options, AttentionPositionsState* state) {
  Tensor out = Tensor::empty(q.shape(), q.dtype(), q.device());
  attention_positions(q, k, v, positions, options, out, state);
  return out;
}

void attention_positions_backward(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                                  const Tensor& out, const AttentionPositions& positions,
                                  const AttentionPositionsState& state, const AttentionPositionsOptions& options,
                                  Tensor& dq, Tensor& dk, Tensor& dv, Tensor* dslopes) {
  constexpr const char* operation = "attention_positions_backward";
  Problem problem = kernels::make_spatial_problem(operation, q, k, v, positions, options, out);
  AttentionState of_kernel;
  of_kernel.lse = core::state_of(of_kernel.kernel).lse = state.lse;
  const kernels::BiasSums sums = kernels::add_gradients(operation, problem, dout, q, k, v, out, of_kernel, dq, dk, dv,
                                                        {.dtable = nullptr, .dslopes = dslopes});
  check_usage(state.lse_low.defined() && state.lse_low.shape() == state.lse.shape() &&
                  state.lse_low.dtype() == DType::float32 && state.lse_low.contiguous(),
              "[{}] state.lse_low has shape {}, expected {} like state.lse", operation, state.lse_low.shape(),
              state.lse.shape());
  const int64_t words = AttentionPositionsState::words(problem.batch, problem.queries, problem.heads, options);
  check_usage(
      state.stops.defined() && state.stops.dtype() == DType::int32 && state.stops.contiguous() &&
          state.stops.elements() == words,
      "[{}] state.stops has shape {}, expected int32 [{}]; the state must come from the forward call with the same "
      "inputs and options",
      operation, state.stops.shape(), words);
  for_padding(problem, &Sequence::query_begin, &Sequence::queries, problem.queries,
              [&](int64_t batch, const Range& rows) { zero_rows(problem, problem.dq, batch, rows, problem.heads); });
  for_padding(problem, &Sequence::key_begin, &Sequence::keys, problem.keys, [&](int64_t batch, const Range& rows) {
    zero_rows(problem, problem.dk, batch, rows, problem.kv_heads);
    zero_rows(problem, problem.dv, batch, rows, problem.kv_heads);
  });
  if (dq.elements() + dk.elements() == 0) return;
  of_kernel = kernel_state(problem, state);
  std::vector<int32_t>& stops = core::state_of(of_kernel.kernel).last_block;
  std::copy_n(state.stops.data<int32_t>(), stops.size(), stops.begin());
  on_cpu([&] { kernels::vector_kernel().backward(problem, of_kernel, sums); });
}

}  // namespace alibi
