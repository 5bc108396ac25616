#include "attention/decode/evicted_share.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/decode/kv_cache_state.h"
#include "attention/problem.h"
#include "core/check.h"
#include "core/parallel.h"

namespace alibi {
namespace kernels {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// How far a computed exponent may lie from the exact one, whose terms have this magnitude: roundings of products and
/// of log-sum-exps in float32, and where the kernels round weights to bfloat16, theirs (docs/attention.md).
double slack(DType dtype, int64_t head_dim, double magnitude) {
  const double of_float = (0x1p-20 + static_cast<double>(head_dim) * 0x1p-23) * magnitude;
  return dtype == DType::float32 ? of_float : of_float + 0x1p-6 + 0x1p-10 * magnitude;
}

}  // namespace

EvictedShares evicted_shares(const Tensor& q, const KvCache& cache, const AttentionOptions& options, const Tensor& lse,
                             int64_t count_from) {
  constexpr const char* operation = "evicted_share";
  const KvCache::State& held = cache.state();
  held.check_on_cpu("evicted_share()");
  check_cpu_type(operation, q.dtype());
  const Tensor keys = held.as_seen(q.dtype());
  const Problem problem = make_problem(operation, q, keys, keys, q, options);
  const Shape expected = {problem.batch, problem.heads, problem.queries};
  check(lse.defined() && lse.shape() == expected && lse.dtype() == DType::float32 && lse.contiguous(),
        "[{}] lse has shape {}, expected float32 {}", operation, to_string(lse.shape()), to_string(expected));
  check(problem.distance_table.empty(), "[{}] options.buckets is set: buckets bound nothing", operation);

  struct Head {
    double worst = -infinity, lead = -infinity;  // as logarithms
    int64_t query = 0;
  };
  std::vector<Head> found(static_cast<size_t>(problem.batch * problem.heads));
  const float* of_rows = lse.data<float>();
  const double scale = std::abs(static_cast<double>(problem.scale));
  const auto look = [&](int64_t at) {
    Head& head = found[static_cast<size_t>(at)];
    const int64_t b = at / problem.heads, h = at % problem.heads, kv_head = h / problem.group();
    const EvictedKeys& evicted = held.evicted[static_cast<size_t>(b * held.kv_heads + kv_head)];
    const double longest = std::max<double>(static_cast<double>(evicted.longest()),
                                            static_cast<double>(held.norms.longest(b * held.kv_heads + kv_head)));
    const HeadBias bias = problem.bias(b, h);
    const int64_t offset = problem.sequences[static_cast<size_t>(b)].query_offset;
    for (int64_t i = 0; i < problem.queries; ++i) {
      const double norm = problem.dtype == DType::float32
                              ? norm_of(problem.q.at<const float>(b, i, h), problem.head_dim)
                              : norm_of(problem.q.at<const bfloat16>(b, i, h), problem.head_dim);
      const double reach = scale * norm, sum = static_cast<double>(of_rows[at * problem.queries + i]);
      const int64_t position = offset + i;
      if (position >= count_from) {
        const double lead = reach * longest - sum;
        head.lead = std::isnan(lead) ? infinity : std::max(head.lead, lead);
      }
      if (evicted.empty()) continue;
      const int64_t nearest = position - (evicted.keys() - 1);
      double weight = infinity;
      if (nearest > bias.most) continue;  // all of them are out of its sight
      if (nearest > 0) {
        const double magnitude = reach * static_cast<double>(evicted.longest()) +
                                 static_cast<double>(bias.slope_before) * static_cast<double>(nearest) + std::abs(sum);
        weight = evicted.log_weight(reach, bias.slope_before, position) - sum +
                 slack(problem.dtype, problem.head_dim, magnitude);
        if (std::isnan(weight)) weight = infinity;
      }
      if (weight > head.worst) {
        head.worst = weight;
        head.query = i;
      }
    }
  };
  constexpr int64_t rows_together = 256;
  core::parallel_ranges(static_cast<int64_t>(found.size()), std::max<int64_t>(1, rows_together / problem.queries),
                        [&](int64_t begin, int64_t end) {
                          for (int64_t at = begin; at < end; ++at) look(at);
                        });

  EvictedShares result;
  result.lead.assign(static_cast<size_t>(problem.heads), -infinity);
  double worst = -infinity;
  for (size_t at = 0; at < found.size(); ++at) {
    const size_t h = at % static_cast<size_t>(problem.heads);
    result.lead[h] = std::max(result.lead[h], found[at].lead);
    if (!(found[at].worst > worst)) continue;
    worst = found[at].worst;
    result.head = static_cast<int64_t>(h);
    result.query = found[at].query;
  }
  result.worst = 1 / (1 + std::exp(-worst));  // of R and the sum that was kept, R / (R + sum)
  return result;
}

}  // namespace kernels

double evicted_share(const Tensor& q, const KvCache& cache, const AttentionOptions& options, const Tensor& lse) {
  return kernels::evicted_shares(q, cache, options, lse, 0).worst;
}

}  // namespace alibi
