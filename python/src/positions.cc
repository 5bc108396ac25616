// attention_positions and its backward pass.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <utility>

#include "alibi/attention_positions.h"
#include "alibi/error.h"
#include "arguments.h"
#include "arrays.h"
#include "bindings.h"
#include "lock.h"
#include "options.h"

namespace alibi::python {
namespace {

using namespace nb::literals;

constexpr const char* operation = "attention_positions";

/// (slopes, distance, leading, softmax_scale, tolerance, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k), as the
/// package makes it.
AttentionPositionsOptions options_of_positions(const nb::tuple& given, int64_t batch) {
  const auto [slopes, metric, leading, softmax_scale, tolerance, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k] =
      items<9>(given);
  AttentionPositionsOptions options;
  if (!slopes.is_none()) {
    options.alibi_slopes =
        floats_of(Array::of_floats(slopes, operation, "alibi_slopes").tensor, operation, "alibi_slopes");
    if (options.alibi_slopes.empty())
      refuse_value(slopes, operation, "alibi_slopes", "a slope for each head; None: no bias");
  }
  const std::string distance = text(metric, operation, "distance");
  if (distance != "euclidean" && distance != "manhattan") {
    refuse_value(metric, operation, "distance", "'euclidean' or 'manhattan'");
  }
  options.distance = distance == "manhattan" ? Distance::manhattan : Distance::euclidean;
  options.leading = integer(leading, operation, "leading");
  options.softmax_scale = scale_of(softmax_scale, operation);
  options.tolerance = single(tolerance, operation, "tolerance");
  options.cu_seqlens_q = offsets_of(cu_seqlens_q, operation, "cu_seqlens_q");
  options.cu_seqlens_k = offsets_of(cu_seqlens_k, operation, "cu_seqlens_k");
  const auto used = [&](nb::handle counts, const char* name) {
    return batch > 0 ? offsets_of(counts, operation, name) : ints_of(counts, operation, name);
  };
  options.seqused_q = used(seqused_q, "seqused_q");
  options.seqused_k = used(seqused_k, "seqused_k");
  return options;
}

/// Positions of queries and keys; the second may be None.
struct Points {
  Array q;
  std::optional<Array> k;

  Points(nb::handle q_in, nb::handle k_in)
      : q(q_in, operation, "positions_q"), k(optional_array(k_in, operation, "positions_k")) {}
  AttentionPositions tensors() const { return {.q = q.tensor, .k = k ? k->tensor : Tensor()}; }
};

/// Writes out; lse and what the backward pass needs only where there is an array for it. Returns the numbers of visited
/// blocks and of all blocks, or zeros without lse.
std::pair<int64_t, int64_t> forward_positions(nb::handle q_in, nb::handle k_in, nb::handle v_in, nb::handle positions_q,
                                              nb::handle positions_k, nb::handle out_in, nb::handle lse_in,
                                              nb::handle lse_low_in, nb::handle stops_in, const nb::tuple& options_in) {
  const Array q(q_in, operation, "q"), k(k_in, operation, "k"), v(v_in, operation, "v");
  const Points points(positions_q, positions_k);
  Array out(out_in, operation, "out");
  std::optional<Array> lse = optional_array(lse_in, operation, "lse"),
                       lse_low = optional_array(lse_low_in, operation, "lse_low"),
                       stops = optional_array(stops_in, operation, "stops");
  const AttentionPositionsOptions options =
      options_of_positions(options_in, q.tensor.axes() > 0 ? q.tensor.size(0) : 0);
  const WithoutLock others_run;
  AttentionPositionsState state;
  if (!lse) {
    attention_positions(q.tensor, k.tensor, v.tensor, points.tensors(), options, out.tensor);
    return {0, 0};
  }
  attention_positions(q.tensor, k.tensor, v.tensor, points.tensors(), options, out.tensor, &state);
  lse->tensor.copy_from(state.lse);
  if (lse_low) lse_low->tensor.copy_from(state.lse_low);
  if (stops) stops->tensor.copy_from(state.stops);
  return {state.stats.blocks_visited, state.stats.blocks_total};
}

void backward_positions(nb::handle dout_in, nb::handle q_in, nb::handle k_in, nb::handle v_in, nb::handle positions_q,
                        nb::handle positions_k, nb::handle out_in, nb::handle lse_in, nb::handle lse_low_in,
                        nb::handle stops_in, nb::handle dq_in, nb::handle dk_in, nb::handle dv_in,
                        nb::handle dslopes_in, const nb::tuple& options_in) {
  const Array dout(dout_in, operation, "dout"), q(q_in, operation, "q"), k(k_in, operation, "k"),
      v(v_in, operation, "v"), out(out_in, operation, "out"), lse(lse_in, operation, "lse"),
      lse_low(lse_low_in, operation, "lse_low"), stops(stops_in, operation, "stops");
  const Points points(positions_q, positions_k);
  Array dq(dq_in, operation, "dq"), dk(dk_in, operation, "dk"), dv(dv_in, operation, "dv");
  std::optional<Array> dslopes = optional_array(dslopes_in, operation, "dslopes");
  const AttentionPositionsOptions options =
      options_of_positions(options_in, q.tensor.axes() > 0 ? q.tensor.size(0) : 0);
  const WithoutLock others_run;
  const AttentionPositionsState state{.lse = lse.tensor, .lse_low = lse_low.tensor, .stops = stops.tensor, .stats = {}};
  Tensor sums;
  if (dslopes) sums = dslopes->tensor.reshape({-1});
  attention_positions_backward(dout.tensor, q.tensor, k.tensor, v.tensor, out.tensor, points.tensors(), state, options,
                               dq.tensor, dk.tensor, dv.tensor, dslopes ? &sums : nullptr);
}

}  // namespace

void bind_positions(nb::module_& m) {
  m.def("attention_positions", forward_positions, "q"_a, "k"_a, "v"_a, "positions_q"_a, "positions_k"_a.none(), "out"_a,
        "lse"_a.none(), "lse_low"_a.none(), "stops"_a.none(), "options"_a);
  m.def(
      "check_positions_options", [](const nb::tuple& options) { options_of_positions(options, 0); }, "options"_a);
  m.def("attention_positions_backward", backward_positions, "dout"_a, "q"_a, "k"_a, "v"_a, "positions_q"_a,
        "positions_k"_a.none(), "out"_a, "lse"_a, "lse_low"_a, "stops"_a, "dq"_a, "dk"_a, "dv"_a, "dslopes"_a.none(),
        "options"_a);
}

}  // namespace alibi::python
