// A test of the measure itself, and cases that are constructed to come near the bounds.
#include "attention/skip_change.h"

#include "attention/cuda/arguments.h"
#include "attention/kernel_state.h"
#include "attention/problem.h"
#include "attention/vector/tasks.h"

namespace alibi::test {
namespace {

double row_norm(const std::vector<double>& values, size_t row, int64_t size) {
  double sum = 0;
  for (size_t i = row * static_cast<size_t>(size); i < (row + 1) * static_cast<size_t>(size); ++i) {
    sum += values[i] * values[i];
  }
  return std::sqrt(sum);
}

double largest_norm(const std::vector<double>& values, int64_t size) {
  double most = 0;
  for (size_t row = 0; row < values.size() / static_cast<size_t>(size); ++row) {
    most = std::max(most, row_norm(values, row, size));
  }
  return most;
}

std::vector<double> difference(const Tensor& found, const std::vector<double>& expected) {
  std::vector<double> result = doubles(found);
  for (size_t i = 0; i < result.size(); ++i) result[i] -= expected[i];
  return result;
}

/// A change divided by its bound; 0 if rounding explains the change.
double over(double change, double bound, double rounding) {
  return std::isnan(change) ? HUGE_VAL : change <= rounding ? 0 : (change - rounding) / bound;
}

struct Outcome {
  std::vector<double> out, lse, dq, dk, dv, dslopes;
};

/// With gates on the device of the tensors.
AttentionOptions options_there(const AttentionCase& c, const AttentionTensors& t) {
  AttentionOptions options = c.options;
  if (options.log_decay) options.log_decay = options.log_decay->to(t.q.device());
  return options;
}

Outcome both_passes(const AttentionCase& c, AttentionTensors& t, float tolerance) {
  AttentionOptions options = options_there(c, t);
  options.tolerance = tolerance;
  t.forward(options);
  Tensor dslopes({c.heads}, DType::float32, t.q.device());
  t.backward(options, {.dslopes = options.alibi_slopes.empty() ? nullptr : &dslopes});
  return {doubles(t.out), doubles(t.state.lse), doubles(t.dq), doubles(t.dk), doubles(t.dv), doubles(dslopes)};
}

/// One row of one head.
struct WeighedRow {
  int64_t batch = 0, head = 0, query = 0;
  size_t number = 0;            ///< [batch][query][head]
  double skipped = 0, all = 0;  ///< sums of weights
  double distance = 0;          ///< farthest key seen
};

/// Calls visit(row) for each.
template <class Visit>
void for_each_row(const AttentionCase& c, const AttentionTensors& t, const kernels::Problem& problem,
                  const Visit& visit) {
  const KernelState kept = KernelState::restore(t.state.lse, t.state.kernel.saved_blocks());
  const core::StateOf<KernelState>& state = core::state_of(kept);
  const bool amx = state.kernel == core::StateOf<KernelState>::Kernel::amx, cuda = t.q.device() == Device::cuda;
  const int64_t query_rows = cuda ? kernels::cuda::tile_rows(c.head_dim) : amx ? 32 : kernels::query_rows;
  const int64_t key_rows = cuda ? kernels::cuda::block_keys : amx ? 32 : kernels::key_rows;
  const int64_t blocks = (c.queries + query_rows - 1) / query_rows;
  const std::vector<double> q = doubles(t.q), k = doubles(t.k);
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t head = 0; head < c.heads; ++head) {
      const kernels::HeadBias bias = problem.bias(problem.sequences[static_cast<size_t>(b)], head);
      for (int64_t i = 0; i < c.queries; ++i) {
        WeighedRow row{.batch = b, .head = head, .query = i};
        row.number = static_cast<size_t>((b * c.queries + i) * c.heads + head);
        const int64_t position = problem.sequences[static_cast<size_t>(b)].query_offset + i;
        const kernels::Range seen = kernels::Problem::keys_seen(bias, position, position, c.keys);
        kernels::Range visited = seen;
        if (!state.first_block.empty()) {
          const auto at = static_cast<size_t>((b * c.heads + head) * blocks + i / query_rows);
          visited = {state.first_block[at] * key_rows, state.last_block[at] * key_rows};
        }
        std::vector<double> scores, gates(static_cast<size_t>(seen.size()), 0.0);  // summed from the row backwards
        for (int64_t j = seen.end - 2; c.options.log_decay && j >= seen.begin; --j) {
          const size_t n = static_cast<size_t>(j - seen.begin),
                       at = static_cast<size_t>((b * c.keys + j + 1) * c.heads + head);
          gates[n] = gates[n + 1] + static_cast<double>(c.options.log_decay->data<float>()[at]);
        }
        double max = -HUGE_VAL;
        for (int64_t j = seen.begin; j < seen.end; ++j) {
          const auto key = static_cast<size_t>((b * c.keys + j) * c.kv_heads + head / problem.group());
          double score = 0;
          for (int64_t d = 0; d < c.head_dim; ++d) {
            score += q[row.number * static_cast<size_t>(c.head_dim) + static_cast<size_t>(d)] *
                     k[key * static_cast<size_t>(c.head_dim) + static_cast<size_t>(d)];
          }
          const int64_t distance = position - j;
          row.distance = std::max(row.distance, static_cast<double>(std::abs(distance)));
          score = problem.score_scale().capped(static_cast<double>(problem.scale) * score) +
                  bias->precise_at(distance) + gates[static_cast<size_t>(j - seen.begin)];
          scores.push_back(score);
          max = std::max(max, score);
        }
        for (int64_t j = seen.begin; j < seen.end; ++j) {
          const double weight = std::exp(scores[static_cast<size_t>(j - seen.begin)] - max);
          row.all += weight;
          if (j < visited.begin || j >= visited.end) row.skipped += weight;
        }
        if (!scores.empty()) row.all += std::exp(static_cast<double>(problem.sink(head)) - max);
        visit(row);
      }
    }
  }
}

}  // namespace

SkipChange skip_change(const AttentionCase& c, AttentionTensors& t, float tolerance, double noise) {
  const kernels::Problem problem = kernels::make_problem("test", t.q, t.k, t.v, t.out, options_there(c, t));
  const Outcome all = both_passes(c, t, 0), some = both_passes(c, t, tolerance);
  const auto tol = static_cast<double>(tolerance), scale = std::abs(static_cast<double>(problem.scale));
  const double kept = 1 / (1 - static_cast<double>(c.options.dropout_p));
  const std::vector<double> q = doubles(t.q), dout = doubles(t.dout);
  const std::vector<double> dout_change = difference(t.out, all.out), dq_change = difference(t.dq, all.dq);
  const double value = kept * largest_norm(doubles(t.v), c.head_dim), key = largest_norm(doubles(t.k), c.head_dim);
  SkipChange change;
  change.visited = static_cast<double>(count_blocks(t.state).blocks_visited) /
                   static_cast<double>(count_blocks(t.state).blocks_total);
  double dk_bound = 0, dv_bound = 0;
  std::vector<double> dslopes_bound(static_cast<size_t>(c.heads), 0.0);
  for_each_row(c, t, problem, [&](const WeighedRow& row) {
    const double mass = row_norm(dout, row.number, c.head_dim), moved = mass * value;
    if (row.all > 0) change.weights = std::max(change.weights, row.skipped / (row.all - row.skipped) / tol);
    change.dropped += row.skipped / std::max(row.all, 1e-300);
    change.out =
        std::max(change.out, over(row_norm(dout_change, row.number, c.head_dim), 2 * tol * value, noise * value));
    const auto lse = static_cast<size_t>((row.batch * c.heads + row.head) * c.queries + row.query);
    if (some.lse[lse] != all.lse[lse]) {
      change.lse = std::max(change.lse,
                            over(std::abs(some.lse[lse] - all.lse[lse]), tol, 1e-6 + 0x1p-22 * std::abs(all.lse[lse])));
    }
    change.dq = std::max(change.dq, over(row_norm(dq_change, row.number, c.head_dim), 6 * tol * moved * scale * key,
                                         noise * moved * scale * key));
    dk_bound += 6 * tol * moved * scale * row_norm(q, row.number, c.head_dim);
    dv_bound += 2 * tol * kept * mass;
    dslopes_bound[static_cast<size_t>(row.head)] += 6 * tol * moved * row.distance;
  });
  const auto summed = [&](const Tensor& found, const std::vector<double>& expected) {
    const std::vector<double> differences = difference(found, expected);
    double sum = 0;
    for (size_t row = 0; row < differences.size() / static_cast<size_t>(c.head_dim); ++row) {
      sum += row_norm(differences, row, c.head_dim);
    }
    return sum;
  };
  change.dk = over(summed(t.dk, all.dk), dk_bound, noise / tol * dk_bound);
  change.dv = over(summed(t.dv, all.dv), dv_bound, noise / tol * dv_bound);
  for (size_t head = 0; head < dslopes_bound.size(); ++head) {
    change.dslopes = std::max(change.dslopes, over(std::abs(some.dslopes[head] - all.dslopes[head]),
                                                   dslopes_bound[head], noise / tol * dslopes_bound[head]));
  }
  return change;
}

}  // namespace alibi::test

namespace alibi::kernels {
namespace {

using namespace test;

TEST(AttentionSkipChange, EveryRowMayDropTheSameKey) {
  // Slope 1, so keys of score 0 weigh 1.58 in sum. One far key has a score that puts it just below the tolerance for
  // every query. Each row may skip it, and the gradient of its value loses more than a whole weight.
  constexpr int64_t key = 63, length = 4096 + key + 1;
  constexpr float tolerance = 0x1p-10f;
  AttentionCase c{.queries = length, .keys = length};
  c.options.alibi_slopes = {1};
  AttentionTensors t(c);
  t.q.fill(0);
  t.k.fill(0);
  t.k.slice(1, key, key + 1).slice(3, 0, 1).fill(4);  // times a scale of 1/4
  for (int64_t i = 0; i < length; ++i) {
    t.q.data<float>()[i * c.head_dim] = static_cast<float>(i - key) + std::log(tolerance) - 0.2f;
  }
  t.dout.fill(1);
  const SkipChange change = skip_change(c, t, tolerance, 1e-6);
  EXPECT_LE(change.worst(), 1) << change.name();
  EXPECT_GT(change.dropped, 1) << "the case is to drop more than a whole weight: " << change.name();
  c.options.dropout_p = 0.5f;
  EXPECT_LE(skip_change(c, t, tolerance, 1e-6).worst(), 1);
}

TEST(AttentionSkipChange, AFarVisitedKeyMovesTheGradientOfTheSlope) {
  // Keys after the query are skipped near it; before it lies a visited key, far away, with much of the weight.
  constexpr int64_t position = 16032;
  constexpr float tolerance = 0.01f;
  AttentionCase c{.queries = 1, .keys = position + 200};
  c.options = {.alibi_slopes = {0.5f}, .alibi_slopes_after = {0.16f}, .causal = false, .query_offset = position};
  AttentionTensors t(c);
  t.q.fill(0);
  t.q.data<float>()[0] = position / 2;
  t.k.fill(0);
  t.k.data<float>()[0] = 4;  // times a scale of 1/4: its score makes up for its penalty
  t.v.fill(1);
  t.v.slice(1, 0, 1).fill(-1);
  t.dout.fill(1);
  const SkipChange change = skip_change(c, t, tolerance, 1e-6);
  EXPECT_LE(change.worst(), 1) << change.name();
  const double nearest_skipped = 32, farthest = position;
  EXPECT_GT(change.dslopes * farthest, nearest_skipped + 1 / 0.16)
      << "less than the distance of the nearest skipped key";
}

TEST(AttentionSkipChange, QueriesFarLongerThanATypicalOne) {
  // The kept bounds are for queries up to 2.2 times as long as the median. Longer queries look farther back than any
  // kept bound says. Here they are one of a block, all of a block, and the last third.
  constexpr float tolerance = 0x1p-10f;
  AttentionCase c{.queries = 480, .keys = 480, .heads = 2, .kv_heads = 1};
  c.options.alibi_slopes = {0.5f, 0.1f};
  double skipped = 0;
  for (const float factor : {10.0f, 30.0f, 100.0f, 1000.0f}) {
    for (const auto& [begin, end] : {std::pair{470, 471}, {432, 480}, {320, 480}}) {
      for (c.seed = 1; c.seed <= 4; ++c.seed) {
        AttentionTensors t(c);
        for (int64_t i = begin * 2 * c.head_dim; i < end * 2 * c.head_dim; ++i) t.q.data<float>()[i] *= factor;
        const SkipChange change = skip_change(c, t, tolerance, 1e-5);
        EXPECT_TRUE(change.worst() <= 1) << factor << " rows " << begin << " to " << end << ": " << change.name();
        skipped = std::max(skipped, 1 - change.visited);
      }
    }
  }
  EXPECT_GT(skipped, 0.3);
}

TEST(AttentionSkipChange, NoRoundingTurnsADecision) {
  // Equal scores and no slope. 64 keys remain; with a tolerance of exactly 1/100 their weight would just be allowed. As
  // a float the tolerance is smaller.
  constexpr float tolerance = 0.01f;
  for (const int64_t keys : {6463, 6464, 6465, 6500, 6600}) {
    AttentionCase c{.queries = 1, .keys = keys, .heads = 2, .kv_heads = 1};
    c.options.alibi_slopes = {0, 0.5f};  // the rule is asked if any head has a slope
    AttentionTensors t(c);
    t.k.fill(0);
    for_each_isa([&] {
      const SkipChange change = skip_change(c, t, tolerance, 1e-6);
      EXPECT_LE(change.worst(), 1) << keys << ": " << change.name();
    });
  }
}

}  // namespace
}  // namespace alibi::kernels
