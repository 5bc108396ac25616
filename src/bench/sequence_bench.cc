#include "bench/sequence_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/format.h"
#include "ranks/sequence.h"
#include "ranks/threads.h"

namespace alibi::bench {
namespace {

double total(const std::vector<int64_t>& counts) {
  return static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
}

double share_of(const std::vector<int64_t>& bytes, int64_t ring) {
  return ring > 0 ? total(bytes) / (static_cast<double>(ring) * static_cast<double>(bytes.size())) : 0;
}

bool same_bits(const Tensor& a, const Tensor& b) { return std::memcmp(a.raw(), b.raw(), a.bytes()) == 0; }

/// Infinite if a difference is not a number.
double relative_difference(const Tensor& found, const Tensor& expected) {
  const std::vector<float> a = found.to_floats(), b = expected.to_floats();
  double difference = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double here = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(here <= difference)) difference = std::isnan(here) ? HUGE_VAL : here;
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  return largest > 0 ? difference / largest : difference;
}

struct Gradients {
  explicit Gradients(const AttentionInputs& inputs)
      : dq(inputs.q.shape(), inputs.q.dtype()),
        dk(inputs.k.shape(), inputs.q.dtype()),
        dv(inputs.k.shape(), inputs.q.dtype()) {}
  Tensor dq, dk, dv;
};

}  // namespace

double SequencePoint::balance() const {
  const auto most = static_cast<double>(*std::max_element(visited.begin(), visited.end()));
  return most > 0 ? total(visited) / (static_cast<double>(visited.size()) * most) : 1;
}
double SequencePoint::forward_share() const { return share_of(forward_bytes, ring_forward_bytes); }
double SequencePoint::backward_share() const { return share_of(backward_bytes, ring_backward_bytes); }

SequencePoint measure_sequence(const AttentionInputs& inputs, int ranks, uint64_t seed) {
  const Tensor &q = inputs.q, &k = inputs.k, &v = inputs.v;
  const Tensor dout = normal_tensor(q.shape(), seed, 3).to(q.dtype());
  const int64_t length = inputs.length();
  SequencePoint point;
  point.dtype = q.dtype();
  point.length = length;
  point.ranks = ranks;
  point.tolerance = inputs.options.tolerance;
  Tensor out(q.shape(), q.dtype());
  Gradients expected(inputs), found(inputs);
  AttentionState state;
  attention(q, k, v, inputs.options, out, &state);
  attention_backward(dout, q, k, v, out, state, inputs.options, expected.dq, expected.dk, expected.dv);

  point.visited.resize(static_cast<size_t>(ranks));
  point.forward_bytes = point.backward_bytes = point.visited;
  Tensor divided(q.shape(), q.dtype()), lse(state.lse.shape());
  ranks::run_as_threads(ranks, [&](ranks::Group& group) {
    const SequenceRanks over = ranks::sequence_ranks(group);
    const SequenceShard shard = sequence_shard(length, over.rank, over.count);
    const auto here = [&](const Tensor& tensor, int axis = 1) {
      return tensor.slice(axis, shard.first, shard.first + shard.rows);
    };
    const auto rank = static_cast<size_t>(over.rank);
    Tensor own_out = here(divided), dq = here(found.dq), dk = here(found.dk), dv = here(found.dv);
    SequenceAttentionState own;
    attention_over_ranks(over, length, here(q), here(k), here(v), inputs.options, own_out, &own);
    point.visited[rank] = own.local.stats.blocks_visited;
    point.forward_bytes[rank] = group.bytes_sent();
    here(lse, 2).copy_from(own.local.lse);
    attention_over_ranks_backward(over, length, here(dout), here(q), here(k), here(v), own_out, own, inputs.options, dq,
                                  dk, dv);
    point.backward_bytes[rank] = group.bytes_sent() - point.forward_bytes[rank];
  });
  point.ring_forward_bytes = static_cast<int64_t>(k.bytes() + v.bytes()) * (ranks - 1) / ranks;
  point.ring_backward_bytes = 2 * point.ring_forward_bytes;
  point.same_bits = same_bits(divided, out) && same_bits(lse, state.lse);
  point.dq = relative_difference(found.dq, expected.dq);
  point.dk = relative_difference(found.dk, expected.dk);
  point.dv = relative_difference(found.dv, expected.dv);
  return point;
}

std::string sequence_table_head() {
  return "type   length    ranks  tolerance  sent forward        sent backward       balance  bits   dq       dk       "
         "dv\n";
}

std::string sequence_table_row(const SequencePoint& point) {
  const auto traffic = [&](const std::vector<int64_t>& bytes, double share) {
    return fmt::format("{} ({:.1f}% of ring)", core::format_bytes(static_cast<int64_t>(total(bytes))), 100 * share);
  };
  return fmt::format("{:<6} {:>7} {:>7}  {:<9.3g}  {:<19} {:<19} {:<8.3f} {:<6} {:<8.1e} {:<8.1e} {:<8.1e}\n",
                     name_of(point.dtype), point.length, point.ranks, point.tolerance,
                     traffic(point.forward_bytes, point.forward_share()),
                     traffic(point.backward_bytes, point.backward_share()), point.balance(),
                     point.same_bits ? "equal" : "differ", point.dq, point.dk, point.dv);
}

nlohmann::ordered_json to_json(const SequencePoint& point) {
  return {{"dtype", name_of(point.dtype)},
          {"length", point.length},
          {"ranks", point.ranks},
          {"tolerance", point.tolerance},
          {"visited", point.visited},
          {"balance", point.balance()},
          {"forward_bytes", point.forward_bytes},
          {"backward_bytes", point.backward_bytes},
          {"ring_forward_bytes", point.ring_forward_bytes},
          {"ring_backward_bytes", point.ring_backward_bytes},
          {"forward_share_of_ring", point.forward_share()},
          {"backward_share_of_ring", point.backward_share()},
          {"same_bits", point.same_bits},
          {"relative_difference", {{"dq", point.dq}, {"dk", point.dk}, {"dv", point.dv}}}};
}

}  // namespace alibi::bench
