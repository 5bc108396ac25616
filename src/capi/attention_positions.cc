// C functions for attention with given positions.
#include "alibi/attention_positions.h"

#include <algorithm>
#include <cstring>

#include "capi/convert.h"

using namespace alibi;
using namespace alibi::capi;

namespace alibi::capi {
namespace {

/// The positions and the options of a call.
struct PositionsCall {
  AttentionPositions positions;
  AttentionPositionsOptions options;
};

Tensor to_points(const char* operation, const char* name, const void* data, int64_t batch, int64_t length,
                 const alibi_positions& given) {
  check(batch >= 0 && batch <= (int64_t{1} << 40), "[{}] positions.{}_batch is {}, expected the batch or 1", operation,
        name, batch);
  check(data != nullptr || batch * length == 0, "[{}] positions.{} is null, expected a pointer", operation, name);
  const DType dtype = given.integers != 0 ? DType::int32 : DType::float32;
  check(reinterpret_cast<uintptr_t>(data) % size_of(dtype) == 0, "[{}] positions.{} is not aligned to its elements",
        operation, name);
  static char nothing[8];
  void* const memory = data != nullptr ? const_cast<void*>(data) : nothing;
  return Tensor::view(memory, {batch, length, given.dims}, dtype, {});
}

PositionsCall to_call(const char* operation, const alibi_positions* given_positions,
                      const alibi_attention_options* given_options, const Tensor& q, const Tensor& k) {
  check_pointer(operation, "positions", given_positions);
  const alibi_positions& given = *given_positions;
  check(given.size == sizeof given, "[{}] positions.size is {}, expected {}; initialize with alibi_positions_default()",
        operation, given.size, sizeof given);
  check(given.dims >= 1 && given.dims <= 3, "[{}] positions.dims is {}, expected 1 to 3", operation, given.dims);
  check(given.integers == 0 || given.integers == 1, "[{}] positions.integers is {}, expected 0 or 1", operation,
        given.integers);
  check(given.distance == ALIBI_EUCLIDEAN || given.distance == ALIBI_MANHATTAN,
        "[{}] positions.distance is {}, expected {} (ALIBI_EUCLIDEAN) or {} (ALIBI_MANHATTAN)", operation,
        given.distance, static_cast<int>(ALIBI_EUCLIDEAN), static_cast<int>(ALIBI_MANHATTAN));
  const AttentionOptions options = to_options(operation, given_options, q);
  const bool counted = !options.alibi_slopes_after.empty() || options.buckets || options.bias_by_distance ||
                       options.query_offset || options.sliding_window != 0 || options.dropout_p != 0;
  check(!counted,
        "[{}] options sets alibi_slopes_after, buckets, query_offset, sliding_window or dropout_p, expected their "
        "defaults: they are for counted distances",
        operation);
  PositionsCall call;
  call.positions.q = to_points(operation, "q", given.q, given.q_batch, q.size(1), given);
  if (given.k != nullptr) call.positions.k = to_points(operation, "k", given.k, given.k_batch, k.size(1), given);
  call.options = {.alibi_slopes = options.alibi_slopes,
                  .distance = given.distance == ALIBI_MANHATTAN ? Distance::manhattan : Distance::euclidean,
                  .leading = given.leading,
                  .softmax_scale = options.softmax_scale,
                  .tolerance = options.tolerance,
                  .cu_seqlens_q = options.cu_seqlens_q,
                  .cu_seqlens_k = options.cu_seqlens_k,
                  .seqused_q = to_offsets(operation, "positions.seqused_q", given.seqused_q, given.seqused_q_count),
                  .seqused_k = to_offsets(operation, "positions.seqused_k", given.seqused_k, given.seqused_k_count)};
  return call;
}

/// Throws Error for a call on a GPU.
void check_on_cpu(const char* operation, const alibi_attention_options* options) {
  check(to_place(operation, options).device == Device::cpu,
        "[{}] device is ALIBI_DEVICE_CUDA, expected ALIBI_DEVICE_CPU, the only device of this operation", operation);
}

}  // namespace
}  // namespace alibi::capi

alibi_status alibi_attention_positions(const alibi_tensor* q, const alibi_tensor* k, const alibi_tensor* v,
                                       const alibi_positions* positions, const alibi_attention_options* options,
                                       const alibi_tensor* out, alibi_attention_state* state) {
  return guarded([&] {
    constexpr const char* operation = "alibi_attention_positions";
    check_on_cpu(operation, options);
    const Tensor q_view = to_tensor(operation, "q", q), k_view = to_tensor(operation, "k", k);
    const Tensor v_view = to_tensor(operation, "v", v);
    Tensor out_view = to_tensor(operation, "out", out);
    const PositionsCall call = to_call(operation, positions, options, q_view, k_view);
    AttentionPositionsState kept;
    attention_positions(q_view, k_view, v_view, call.positions, call.options, out_view,
                        state != nullptr ? &kept : nullptr);
    if (state == nullptr) return;
    state->state = {.lse = kept.lse, .stats = kept.stats, .kernel = {}};
    state->positions = kept;
    state->stream = nullptr;
  });
}

alibi_status alibi_attention_positions_backward(const alibi_tensor* dout, const alibi_tensor* q, const alibi_tensor* k,
                                                const alibi_tensor* v, const alibi_tensor* out,
                                                const alibi_positions* positions, const alibi_attention_state* state,
                                                const alibi_attention_options* options, const alibi_tensor* dq,
                                                const alibi_tensor* dk, const alibi_tensor* dv, float* dslopes) {
  return guarded([&] {
    constexpr const char* operation = "alibi_attention_positions_backward";
    check_on_cpu(operation, options);
    const Tensor dout_view = to_tensor(operation, "dout", dout), q_view = to_tensor(operation, "q", q);
    const Tensor k_view = to_tensor(operation, "k", k), v_view = to_tensor(operation, "v", v);
    const Tensor out_view = to_tensor(operation, "out", out);
    check_pointer(operation, "state", state);
    Tensor dq_view = to_tensor(operation, "dq", dq), dk_view = to_tensor(operation, "dk", dk);
    Tensor dv_view = to_tensor(operation, "dv", dv);
    const PositionsCall call = to_call(operation, positions, options, q_view, k_view);
    Tensor dslopes_view;
    if (dslopes != nullptr) {
      check(!call.options.alibi_slopes.empty(), "[{}] dslopes is given, but alibi_slopes is not; set both or neither",
            operation);
      dslopes_view = Tensor::view(dslopes, {static_cast<int64_t>(call.options.alibi_slopes.size())});
    }
    attention_positions_backward(dout_view, q_view, k_view, v_view, out_view, call.positions, state->positions,
                                 call.options, dq_view, dk_view, dv_view, dslopes != nullptr ? &dslopes_view : nullptr);
  });
}
