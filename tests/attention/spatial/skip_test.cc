// The skip rule for given positions: each change by skipping is compared with its bound
// (docs/explanation/positions.md), for inputs of many kinds and for those that a search makes worse step by step.
#include <cmath>
#include <random>

#include "attention/spatial/cases.h"

namespace alibi::kernels {
namespace {

using namespace test;

/// Measured changes divided by their bounds: more than 1 is a violation.
struct SpatialChange {
  double weights = 0, out = 0;    ///< of the worst row
  double dq = 0, dk = 0, dv = 0;  ///< of the worst row; of the sums over all keys
  double dslopes = 0;             ///< of the worst head
  double visited = 1;             ///< share of the blocks

  double worst() const { return std::max({weights, out, dq, dk, dv, dslopes}); }
  std::string name() const {
    return fmt::format("weights {:.3f} out {:.3f} dq {:.3f} dk {:.3f} dv {:.3f} dslopes {:.3f} visited {:.2f}", weights,
                       out, dq, dk, dv, dslopes, visited);
  }
};

/// Norms of the rows of [batch, length, heads, head_dim], minus those of `other` if it is given.
std::vector<double> row_norms(const Tensor& rows, const Tensor* other = nullptr) {
  const std::vector<double> a = doubles(rows), b = other != nullptr ? doubles(*other) : std::vector<double>(a.size());
  const auto dim = static_cast<size_t>(rows.size(3));
  std::vector<double> norms(a.size() / dim);
  for (size_t i = 0; i < a.size(); ++i) norms[i / dim] += (a[i] - b[i]) * (a[i] - b[i]);
  for (double& norm : norms) norm = std::sqrt(norm);
  return norms;
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double x : values) sum += x;
  return sum;
}

/// For one batch entry, slopes of [heads], one head per key/value head. `noise`: relative rounding of float32 results.
SpatialChange spatial_change(const SpatialCase& c, SpatialTensors& t, float tolerance, double noise = 4e-6) {
  AttentionPositionsOptions options = c.options;
  const auto run = [&](float skipping, Tensor& dslopes) {
    options.tolerance = skipping;
    SpatialTensors r = t;
    for (Tensor* output : {&r.out, &r.dq, &r.dk, &r.dv}) *output = Tensor::empty(output->shape());
    r.forward(options);
    dslopes = Tensor({c.heads});
    r.backward(options, &dslopes);
    return r;
  };
  Tensor dslopes_all, dslopes;
  const SpatialTensors all = run(0, dslopes_all), some = run(tolerance, dslopes);
  SpatialChange change;
  change.visited =
      static_cast<double>(some.state.stats.blocks_visited) / static_cast<double>(some.state.stats.blocks_total);
  const auto tol = static_cast<double>(tolerance);
  const auto heads = static_cast<size_t>(c.heads);
  const std::vector<double> q = row_norms(t.q), k = row_norms(t.k), v = row_norms(t.v), dout = row_norms(t.dout);
  const std::vector<double> out = row_norms(all.out, &some.out), dq = row_norms(all.dq, &some.dq);
  const double scale = std::abs(c.options.softmax_scale != 0 ? static_cast<double>(c.options.softmax_scale)
                                                             : 1 / std::sqrt(static_cast<double>(c.head_dim)));
  std::vector<double> k_max(heads), v_max(heads), dk_bound(heads), dv_bound(heads);
  for (size_t i = 0; i < k.size(); ++i) {
    k_max[i % heads] = std::max(k_max[i % heads], k[i]);
    v_max[i % heads] = std::max(v_max[i % heads], v[i]);
  }
  double farthest = 0;
  const std::vector<float> at = t.positions.q.to_floats(),
                           of = t.positions.k.defined() ? t.positions.k.to_floats() : at;
  for (size_t i = 0; i < at.size(); i += static_cast<size_t>(c.dims)) {
    for (size_t j = 0; j < of.size(); j += static_cast<size_t>(c.dims)) {
      double sum = 0;
      for (size_t axis = 0; axis < static_cast<size_t>(c.dims); ++axis)
        sum += std::abs(static_cast<double>(at[i + axis] - of[j + axis]));
      farthest = std::max(farthest, sum);  // the Manhattan distance is the larger one
    }
  }
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t head = i % heads;
    const size_t lse_at = head * static_cast<size_t>(c.queries) + i / heads;
    const auto lse = [&](const SpatialTensors& r) {
      return static_cast<double>(r.state.lse.data<float>()[lse_at]) +
             0.6931471805599453 * static_cast<double>(r.state.lse_low.data<float>()[lse_at]);
    };
    const double a = dout[i] * v_max[head];
    change.weights = std::max(change.weights, (std::expm1(lse(all) - lse(some)) - noise) / tol);
    change.out = std::max(change.out, (out[i] - noise * v_max[head]) / (2 * tol * v_max[head]));
    change.dq =
        std::max(change.dq, (dq[i] - noise * 40 * a * scale * k_max[head]) / (6 * tol * a * scale * k_max[head]));
    dv_bound[head] += 2 * tol * dout[i];
    dk_bound[head] += 6 * tol * a * scale * q[i];
  }
  const std::vector<double> dk = row_norms(all.dk, &some.dk), dv = row_norms(all.dv, &some.dv);
  for (size_t head = 0; head < heads; ++head) {
    double dk_sum = 0, dv_sum = 0;
    for (size_t i = head; i < dk.size(); i += heads) {
      dk_sum += dk[i];
      dv_sum += dv[i];
    }
    const double room = 40 * noise / tol;
    change.dk = std::max(change.dk, dk_sum / dk_bound[head] - room);
    change.dv = std::max(change.dv, dv_sum / dv_bound[head] - room);
    double a_sum = 0;
    for (size_t i = head; i < dout.size(); i += heads) a_sum += dout[i] * v_max[head];
    const double slope_change =
        std::abs(static_cast<double>(dslopes_all.data<float>()[head] - dslopes.data<float>()[head]));
    change.dslopes = std::max(change.dslopes, slope_change / (6 * tol * a_sum * std::max(farthest, 1e-30)) - room);
  }
  EXPECT_FALSE(std::isnan(sum_of(out) + sum_of(dq) + sum_of(dk) + sum_of(dv)));
  return change;
}

/// Draws inputs, and changes them in steps.
class SpatialSearch {
 public:
  explicit SpatialSearch(uint64_t seed) : random_(seed) {}

  double uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }
  int64_t integer(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool chance(double p) { return uniform(0, 1) < p; }

  SpatialCase a_case(int number) {
    SpatialCase c{.heads = 2, .kv_heads = 2, .head_dim = 16};
    c.pattern = all_patterns[static_cast<size_t>(number) % std::size(all_patterns)];
    c.dims = integer(1, 3);
    c.keys = integer(200, 700);
    c.self = chance(0.4);
    c.queries = c.self ? c.keys : integer(40, 150);
    c.seed = static_cast<uint64_t>(integer(1, 100000));
    c.input_scale = static_cast<float>(std::exp(uniform(-3, 1)));
    c.options.distance = chance(0.5) ? Distance::euclidean : Distance::manhattan;
    if (chance(0.3)) c.options.leading = integer(1, 3);
    for (int64_t head = 0; head < c.heads; ++head) {
      c.options.alibi_slopes.push_back(static_cast<float>(std::exp(uniform(std::log(1e-3), std::log(3.0)))));
    }
    if (chance(0.2)) c.options.softmax_scale = static_cast<float>(uniform(-1, 1));
    return c;
  }
  float tolerance() { return static_cast<float>(std::exp(uniform(std::log(1e-3), std::log(0.5)))); }

  void shape(SpatialTensors& t) {
    switch (integer(0, 6)) {
      case 0:
        break;  // normal numbers
      case 1:
        add_common(t.k, uniform(0, 3));
        break;
      case 2:
        t.k.fill(0);
        break;
      case 3:  // every score is the product of two norms
        t.q.fill(static_cast<float>(uniform(0.2, 2)));
        t.k.fill(static_cast<float>(uniform(-1, 1)));
        break;
      case 4:
        for (int64_t n = integer(1, 5); n > 0; --n) scale_row(t.k, integer(0, t.k.size(1) - 1), uniform(1, 30));
        break;
      case 5: {  // norms that grow with the distance from the first query
        for (int64_t j = 0; j < t.k.size(1); ++j) scale_row(t.k, j, 1 + uniform(0.01, 0.1) * from_first_query(t, j));
        break;
      }
      default:  // values that differ as far as they can
        for (int64_t j = 0; j < t.v.size(1); ++j) t.v.slice(1, j, j + 1).fill(chance(0.5) ? 1.0f : -1.0f);
    }
  }

  /// A small step from given inputs: keys, queries, values, or a point.
  void step(SpatialTensors& t) {
    const int64_t at = integer(0, t.k.size(1) - 1);
    switch (integer(0, 5)) {
      case 0:
        scale_row(t.k, at, uniform(0.5, 2));
        break;
      case 1:
        scale_row(t.q, integer(0, t.q.size(1) - 1), uniform(0.5, 2));
        break;
      case 2:
        t.k.slice(1, at, at + 1).copy_from(t.q.slice(1, 0, 1));
        break;
      case 3:  // far keys differ in their values from near ones, and are long
        for (int64_t j = 0; j < t.k.size(1); ++j) {
          const bool far = from_first_query(t, j) > uniform(0, 60);
          t.v.slice(1, j, j + 1).fill(far ? 1.0f : -1.0f);
          if (far) scale_row(t.k, j, uniform(1, 1.2));
        }
        break;
      case 4: {  // a point moves, to that of a query in one of two cases
        Tensor& points = t.positions.k.defined() ? t.positions.k : t.positions.q;
        for (int64_t axis = 0; axis < points.size(2); ++axis) {
          points.data<float>()[at * points.size(2) + axis] =
              chance(0.5) ? t.positions.q.data<float>()[axis] : static_cast<float>(uniform(-50, 100));
        }
        break;
      }
      default:
        for (int64_t j = 0; j < at; ++j) scale_row(t.k, j, 1 + uniform(0, 0.2));
    }
  }

 private:
  static double from_first_query(const SpatialTensors& t, int64_t key) {
    const Tensor& of = t.positions.k.defined() ? t.positions.k : t.positions.q;
    double sum = 0;
    for (int64_t axis = 0; axis < of.size(2); ++axis) {
      sum +=
          std::abs(static_cast<double>(of.data<float>()[key * of.size(2) + axis] - t.positions.q.data<float>()[axis]));
    }
    return std::min(sum, 200.0);
  }
  void add_common(Tensor& tensor, double size) {
    std::vector<float> common;
    for (int64_t d = 0; d < tensor.size(3); ++d) common.push_back(static_cast<float>(size * uniform(-1, 1)));
    for (int64_t i = 0; i < tensor.elements(); ++i)
      tensor.data<float>()[i] += common[static_cast<size_t>(i) % common.size()];
  }
  static void scale_row(Tensor& tensor, int64_t row, double factor) {
    const int64_t size = tensor.size(2) * tensor.size(3);
    for (int64_t i = row * size; i < (row + 1) * size; ++i) tensor.data<float>()[i] *= static_cast<float>(factor);
  }

  std::mt19937_64 random_;
};

TEST(AttentionPositionsSkip, SearchFindsNoViolation) {
  for_each_isa([&] {
    SpatialSearch search(11);
    SpatialChange worst;
    double min_visited = 1;
    for (int number = 0; number < 28; ++number) {
      const SpatialCase c = search.a_case(number);
      const float tolerance = search.tolerance();
      SCOPED_TRACE(fmt::format("tolerance {} {}", tolerance, c.name()));
      SpatialTensors t(c);
      search.shape(t);
      SpatialChange best = spatial_change(c, t, tolerance);
      EXPECT_TRUE(best.worst() <= 1) << best.name();
      for (int n = 0; n < 4; ++n) {
        SpatialTensors next = t;
        for (Tensor* input : {&next.q, &next.k, &next.v, &next.positions.q, &next.positions.k}) {
          if (input->defined()) *input = input->clone();
        }
        search.step(next);
        const SpatialChange change = spatial_change(c, next, tolerance);
        EXPECT_TRUE(change.worst() <= 1) << change.name();
        if (!(change.worst() > best.worst())) continue;
        best = change;
        t = next;
      }
      min_visited = std::min(min_visited, best.visited);
      if (best.worst() > worst.worst()) worst = best;
    }
    RecordProperty(std::string("worst_") + name_of(isa()), worst.name());
    EXPECT_GT(worst.worst(), 0.3) << "a search that comes nowhere near the bounds: " << worst.name();
    EXPECT_LT(min_visited, 0.5);
  });
}

/// Equal keys: the bound is the exact weight up to the sizes of the boxes, and the rule stops near the tolerance.
TEST(AttentionPositionsSkip, IsTightForEqualKeys) {
  SpatialCase c{.queries = 2000, .keys = 2000, .heads = 2, .kv_heads = 2, .dims = 1, .self = true};
  c.options.alibi_slopes = {0.05f, 0.02f};
  SpatialTensors t(c);
  for (int64_t i = 0; i < c.keys; ++i) t.positions.q.data<float>()[i] = static_cast<float>(i);
  t.k.fill(0);
  const SpatialChange change = spatial_change(c, t, 0.01f);
  EXPECT_LE(change.worst(), 1) << change.name();
  EXPECT_GT(change.weights, 0.1) << change.name();
  EXPECT_LT(change.visited, 0.4) << change.name();
}

/// On a grid of 96 x 96, a head with slope 1/2 visits its surroundings only, and one without a slope visits everything.
TEST(AttentionPositionsSkip, VisitsTheSurroundings) {
  SpatialCase c{.queries = 9216, .keys = 9216, .self = true};
  SpatialTensors t(c);
  for (int64_t i = 0; i < c.keys; ++i) {
    t.positions.q.data<float>()[2 * i] = static_cast<float>(i % 96);
    t.positions.q.data<float>()[2 * i + 1] = static_cast<float>(i / 96);
  }
  c.options.tolerance = 0x1p-24f;
  const auto visited = [&](float slope, float distance_unit) {
    c.options.alibi_slopes = {slope / distance_unit};
    SpatialTensors scaled = t;
    scaled.positions.q = t.positions.q.clone();
    for (int64_t i = 0; i < 2 * c.keys; ++i) scaled.positions.q.data<float>()[i] *= distance_unit;
    scaled.forward(c.options);
    return static_cast<double>(scaled.state.stats.blocks_visited) /
           static_cast<double>(scaled.state.stats.blocks_total);
  };
  EXPECT_LT(visited(2, 1), 0.2);
  EXPECT_LT(visited(0.5f, 1), 0.7);
  EXPECT_EQ(visited(0.5f, 1), visited(0.5f, 1024));  // pixels instead of tiles
  EXPECT_EQ(visited(0, 1), 1);
}

}  // namespace
}  // namespace alibi::kernels
