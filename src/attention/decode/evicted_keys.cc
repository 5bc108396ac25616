#include "attention/decode/evicted_keys.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "attention/decode/kv_cache_state.h"
#include "attention/problem.h"
#include "attention/skip/norms.h"
#include "core/check.h"
#include "core/parallel.h"

namespace alibi {
namespace kernels {
namespace {

/// Stretches of one class differ in size by less than a factor of two.
int size_class(const EvictedKeys::Stretch& stretch) {
  return std::bit_width(static_cast<uint64_t>(stretch.end - stretch.begin));
}

constexpr double infinity = std::numeric_limits<double>::infinity();

}  // namespace

void EvictedKeys::add(const Stretch& stretch) {
  longest_ = std::max(longest_, stretch.norm);
  stretches_.push_back(stretch);
  // If three stretches have equal size, the older two are merged. The result may be the third of its own size.
  for (size_t i = stretches_.size() - 1; i >= 2; i -= 2) {
    Stretch& oldest = stretches_[i - 2];
    const Stretch middle = stretches_[i - 1];
    const int size = size_class(stretches_[i]);
    if (size_class(middle) != size || size_class(oldest) != size) break;
    oldest.end = middle.end;
    oldest.norm = std::max(oldest.norm, middle.norm);
    stretches_.erase(stretches_.begin() + static_cast<int64_t>(i) - 1);
  }
}

double EvictedKeys::log_weight(double score_per_norm, double log_sum, const Bias& bias, int64_t position,
                               const Roundings& roundings) const {
  constexpr double log2e = std::numbers::log2e;
  const SkipRow<double> row = {.norm = score_per_norm * log2e, .product = 0, .share = 0, .top = log_sum * log2e};
  double max = -infinity, sum = 0;
  for (const Stretch& stretch : stretches_) {
    const double exponent = log2_weight_of_key(row, stretch.norm, stretch.norm, bias, Side::before,
                                               position - (stretch.end - 1), roundings) +
                            std::log2(weight_of_keys(bias.fall(Side::before, 1), stretch.end - stretch.begin));
    if (!(exponent < infinity)) return infinity;
    const double top = std::max(max, exponent);
    sum = sum * std::exp2(max - top) + std::exp2(exponent - top);
    max = top;
  }
  return (max + std::log2(sum)) / log2e;
}

void EvictedWeights::add(const HeadDecay& decay, const Range& keys, float norm, float radius) {
  if (empty()) {
    // Any values of x give a bound. These are scores of the first radius, in powers of two.
    constexpr WeightBounds::Values scores = {0, 4, 8, 14, 20, 30, 45, 70};
    const bool usable = radius > 1e-20f && radius < infinity;
    for (size_t e = 0; e < x_.size(); ++e) x_[e] = usable ? scores[e] / radius : scores[e];
  }
  double weights = 0;
  for (int64_t key = keys.begin; key < keys.end; ++key) weights += std::exp2(-gates_in_log2(decay, key, keys.end - 1));
  WeightBounds::Values block;
  for (size_t e = 0; e < block.size(); ++e) {
    block[e] = radius < infinity ? above(static_cast<double>(x_[e]) * static_cast<double>(radius) + std::log2(weights))
                                 : static_cast<float>(infinity);
  }
  sum_.add(block, empty() ? 0 : gates_in_log2(decay, keys.begin - 1, keys.end - 1));
  norm_ = std::max(norm_, norm);
  radius_ = std::max(radius_, radius);
  keys_ = keys.end;
}

double EvictedWeights::log2_weight(SkipRow<double> row, const HeadBias& bias, int64_t position,
                                   const Roundings& roundings) const {
  const WeightBounds::Values values = sum_.values();
  const WeightBounds::Head head{.x = x_, .before = &values, .radius_before = &radius_};
  const float x = above(row.norm);
  const Levels at = head.levels_of(x, x);
  const Chord chord = head.chord_before(at, 0);
  row.share = static_cast<double>(at.share(x));
  const RemainingKeys keys{.score_per_norm = static_cast<double>(norm_),
                           .radius_per_norm = static_cast<double>(radius_),
                           .biases = static_cast<double>(values[0]),
                           .summed = true,
                           .low = static_cast<double>(chord.low),
                           .rise = static_cast<double>(chord.rise)};
  const double beyond = bias->beyond(Side::before, position - (keys_ - 1)) * std::numbers::log2e -
                        gates_in_log2(bias.decay, keys_ - 1, position);
  return SkipBound::log2_weight(DoubleMath(), row, keys, beyond, roundings);
}

KeyBounds bounds_of_block(const core::StateOf<KvCache>& cache, int64_t head, int64_t block) {
  const float error = cache.errors.at(head, 0, block);
  const auto given = [&](float stored) { return error > 0 ? (stored + error) * (1 + 0x1p-22f) : stored; };
  return {given(cache.norms.at(head, 0, block)), given(cache.radii.at(head, 0, block))};
}

static double norm_of_query(const Problem& problem, int64_t b, int64_t query, int64_t head) {
  double sum = 0;
  for (int64_t d = 0; d < problem.head_dim; ++d) {
    const auto x = static_cast<double>(load_value(problem.dtype, problem.q.data, problem.q.offset(b, query, head) + d));
    sum += x * x;
  }
  return std::sqrt(sum);
}

EvictedShares evicted_shares(const Tensor& q, const KvCache& cache, const AttentionOptions& options, const Tensor& lse,
                             int64_t count_from) {
  constexpr const char* operation = "evicted_share";
  const core::StateOf<KvCache>& held = core::state_of(cache);
  held.check_on_cpu("evicted_share()");
  check_no_gates(operation, options);
  const Tensor keys = held.as_seen(q.dtype());
  Problem problem = make_problem(operation, q, keys, keys, q, options);
  add_gates(operation, held, problem);
  const Shape expected = {problem.batch, problem.heads, problem.queries};
  check_usage(lse.defined() && lse.shape() == expected && lse.dtype() == DType::float32 && lse.contiguous(),
              "[{}] lse has shape {}, expected float32 {}", operation, to_string(lse.shape()), to_string(expected));

  struct Head {
    double worst = -infinity, lead = -infinity;  // as logarithms
    double norm = 0;
    int64_t query = 0;
  };
  std::vector<Head> found(static_cast<size_t>(problem.batch * problem.heads));
  const float* of_rows = lse.data<float>();
  const double scale = std::abs(static_cast<double>(problem.scale));
  const Roundings roundings = Roundings::of_evicted(problem);
  const auto look = [&](int64_t at) {
    Head& head = found[static_cast<size_t>(at)];
    const int64_t b = at / problem.heads, h = at % problem.heads, kv_head = h / problem.group();
    const EvictedKeys& evicted = held.evicted[static_cast<size_t>(b * held.kv_heads + kv_head)];
    const float* const centre = held.centre(b * held.kv_heads + kv_head);
    const double longest = std::max<double>(static_cast<double>(evicted.longest()),
                                            static_cast<double>(held.norms.longest(b * held.kv_heads + kv_head)));
    const Sequence& sequence = problem.sequences[static_cast<size_t>(b)];
    const HeadBias bias = problem.bias(sequence, h);
    const int64_t offset = sequence.query_offset;
    for (int64_t i = 0; i < problem.queries; ++i) {
      const double norm = norm_of_query(problem, b, i, h);
      head.norm = std::isnan(norm) ? infinity : std::max(head.norm, norm);
      const double score_per_norm = scale * norm, sum = static_cast<double>(of_rows[at * problem.queries + i]);
      const int64_t position = offset + i;
      if (position >= count_from) {
        const double lead = score_per_norm * longest - sum;
        head.lead = std::isnan(lead) ? infinity : std::max(head.lead, lead);
      }
      if (held.begin(kv_head) == 0) continue;
      const int64_t nearest = position - (held.begin(kv_head) - 1);
      double weight = infinity;
      if (nearest > bias.most) continue;  // the head does not see these keys
      if (nearest > 0) {
        // The exact keys could have a log-sum-exp that is smaller by the error of a score.
        const double error = score_per_norm * static_cast<double>(held.errors.longest(b * held.kv_heads + kv_head));
        if (bias.decay) {
          double product = 0;
          for (int64_t d = 0; d < problem.head_dim; ++d) {
            const int64_t element = problem.q.offset(b, i, h) + d;
            product += static_cast<double>(load_value(problem.dtype, problem.q.data, element)) *
                       static_cast<double>(centre[d]);
          }
          const SkipRow<double> row = {.norm = score_per_norm * std::numbers::log2e,
                                       .product = product * static_cast<double>(problem.scale) * std::numbers::log2e,
                                       .share = 0,
                                       .top = sum * std::numbers::log2e};
          weight = held.evicted_weights[static_cast<size_t>(at)].log2_weight(row, bias, position, roundings) /
                   std::numbers::log2e;
        } else {
          weight = evicted.log_weight(score_per_norm, sum, *bias.form, position, roundings);
        }
        weight += error;
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
  result.biases = problem.biases;
  result.lead.assign(static_cast<size_t>(problem.heads), -infinity);
  result.norm.assign(static_cast<size_t>(problem.heads), 0);
  double worst = -infinity;
  for (size_t at = 0; at < found.size(); ++at) {
    const size_t h = at % static_cast<size_t>(problem.heads);
    result.lead[h] = std::max(result.lead[h], found[at].lead);
    result.norm[h] = std::max(result.norm[h], found[at].norm);
    if (!(found[at].worst > worst)) continue;
    worst = found[at].worst;
    result.head = static_cast<int64_t>(h);
    result.query = found[at].query;
  }
  result.worst = 1 / (1 + std::exp(-worst));  // the share is R / (R + sum), where R is the weight of the evicted keys
  return result;
}

void leave_gap(KvCache& cache_in, int64_t length) {
  auto& cache = const_cast<core::StateOf<KvCache>&>(
      core::state_of(cache_in));  // the state belongs to the cache, so it may be changed
  cache.check_on_cpu("leave_gap()");
  check_usage(length % cache_block == 0, "[kv_cache] the gap ends at {}, expected a multiple of {}", length,
              cache_block);
  if (length <= cache.length) return;
  std::vector<float> longest;
  for (int64_t head = 0; head < cache.batch * cache.kv_heads; ++head) longest.push_back(cache.norms.longest(head));
  cache = core::StateOf<KvCache>(cache.batch, cache.kv_heads, cache.head_dim, cache.dtype);
  cache.begins.assign(cache.begins.size(), length);
  cache.length = length;
  set_capacity(cache, length);
  cache.norms.resize(length);
  cache.radii.resize(length);
  cache.errors.resize(length);
  for (size_t head = 0; head < longest.size(); ++head) {
    cache.evicted[head].add({0, length, longest[head]});
    cache.norms.evict(static_cast<int64_t>(head), length / cache_block);
    cache.radii.evict(static_cast<int64_t>(head), length / cache_block);
    cache.errors.evict(static_cast<int64_t>(head), length / cache_block);
  }
}

}  // namespace kernels

double evicted_share(const Tensor& q, const KvCache& cache, const AttentionOptions& options, const Tensor& lse) {
  return kernels::evicted_shares(q, cache, options, lse, 0).worst;
}

double score_error(const Tensor& q, const KvCache& cache, const AttentionOptions& options) {
  using namespace kernels;
  constexpr const char* operation = "score_error";
  const core::StateOf<KvCache>& held = core::state_of(cache);
  held.check_on_cpu("score_error()");
  check_no_gates(operation, options);
  const Tensor keys = held.as_seen(q.dtype());
  const Problem problem = make_problem(operation, q, keys, keys, q, options);
  double worst = 0;
  if (held.dtype != DType::q8_0) return worst;
  for (int64_t b = 0; b < problem.batch; ++b) {
    for (int64_t h = 0; h < problem.heads; ++h) {
      const auto error = static_cast<double>(held.errors.longest(b * held.kv_heads + h / problem.group()));
      for (int64_t i = 0; i < problem.queries; ++i) {
        const double norm = norm_of_query(problem, b, i, h);
        const double bound = std::abs(static_cast<double>(problem.scale)) * norm * error;
        worst = std::isnan(bound) ? infinity : std::max(worst, bound);
      }
    }
  }
  return worst;
}

}  // namespace alibi
