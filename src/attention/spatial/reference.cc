// attention_positions() in float64, row by row. It shares nothing with the kernels but the checks of the arguments.
#include <cmath>
#include <limits>

#include "alibi/attention_positions.h"
#include "attention/spatial/spatial.h"
#include "core/parallel.h"

namespace alibi {
namespace {

using kernels::Problem;
using kernels::Sequence;
using kernels::SpatialProblem;

/// All inputs as contiguous float64.
struct SpatialReference {
  const Problem& problem;
  const AttentionPositionsOptions& options;
  std::vector<double> q, k, v, dout, query_points, key_points;
  size_t dims;
  bool one_q, one_k;  // positions are shared by all batch entries

  SpatialReference(const Problem& of, const AttentionPositionsOptions& with, const Tensor& q_in, const Tensor& k_in,
                   const Tensor& v_in, const AttentionPositions& positions)
      : problem(of), options(with), q(values(q_in)), k(values(k_in)), v(values(v_in)) {
    const Tensor& of_keys = positions.k.defined() ? positions.k : positions.q;
    query_points = values(positions.q);
    key_points = values(of_keys);
    dims = static_cast<size_t>(of_keys.size(2));
    one_q = positions.q.size(0) == 1;
    one_k = of_keys.size(0) == 1;
  }

  static std::vector<double> values(const Tensor& tensor) {
    if (tensor.dtype() == DType::int32) {
      const std::vector<int32_t> all = tensor.to_ints();
      return {all.begin(), all.end()};
    }
    const std::vector<float> all = tensor.to_floats();
    return {all.begin(), all.end()};
  }

  size_t at(int64_t batch, int64_t row, int64_t head, int64_t rows, int64_t heads) const {
    return static_cast<size_t>(((batch * rows + row) * heads + head) * problem.head_dim);
  }
  const double* query(const std::vector<double>& from, const Sequence& s, int64_t i, int64_t head) const {
    return &from[at(s.batch, s.query_begin + i, head, problem.queries, problem.heads)];
  }
  size_t key_at(const Sequence& s, int64_t j, int64_t head) const {
    return at(s.batch, s.key_begin + j, head / problem.group(), problem.keys, problem.kv_heads);
  }

  double distance(const Sequence& s, int64_t i, int64_t j) const {
    if (i < options.leading || j < options.leading) return 0;
    const auto row_q = static_cast<size_t>((one_q ? 0 : s.batch) * problem.queries + s.query_begin + i);
    const auto row_k = static_cast<size_t>((one_k ? 0 : s.batch) * problem.keys + s.key_begin + j);
    double sum = 0;
    for (size_t axis = 0; axis < dims; ++axis) {
      const double part = query_points[row_q * dims + axis] - key_points[row_k * dims + axis];
      sum += options.distance == Distance::manhattan ? std::abs(part) : part * part;
    }
    return options.distance == Distance::manhattan ? sum : std::sqrt(sum);
  }

  double dot(const double* a, const double* b) const {
    double sum = 0;
    for (int64_t d = 0; d < problem.head_dim; ++d) sum += a[d] * b[d];
    return sum;
  }

  /// The weights of one row; returns its log-sum-exp.
  double weights(const Sequence& s, int64_t i, int64_t head, std::vector<double>& p) const {
    const double slope = problem.bias(s, head)->fall(kernels::Side::before, 1);
    p.resize(static_cast<size_t>(s.keys));
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t j = 0; j < s.keys; ++j) {
      const double score = static_cast<double>(problem.scale) * dot(query(q, s, i, head), &k[key_at(s, j, head)]);
      p[static_cast<size_t>(j)] = score - slope * distance(s, i, j);
      max = std::max(max, p[static_cast<size_t>(j)]);
    }
    if (s.keys == 0) return max;
    for (double& x : p) sum += x = std::exp(x - max);
    for (double& x : p) x /= sum;
    return max + std::log(sum);
  }
};

}  // namespace

void attention_positions_reference(const Tensor& q, const Tensor& k, const Tensor& v,
                                   const AttentionPositions& positions, const AttentionPositionsOptions& options,
                                   std::vector<double>& out, std::vector<double>* lse) {
  const SpatialProblem spatial =
      kernels::make_spatial_problem("attention_positions_reference", q, k, v, positions, options, q);
  const Problem& problem = spatial.base;
  const SpatialReference reference(problem, options, q, k, v, positions);
  out.assign(static_cast<size_t>(q.elements()), 0.0);
  if (lse != nullptr) {
    lse->assign(static_cast<size_t>(problem.batch * problem.heads * problem.queries),
                -std::numeric_limits<double>::infinity());
  }
  for (const Sequence& s : problem.sequences) {
    core::parallel_for(problem.heads * s.queries, [&](int64_t task) {
      const int64_t head = task / s.queries, i = task % s.queries;
      std::vector<double> p;
      const double log_sum = reference.weights(s, i, head, p);
      double* const to = &out[reference.at(s.batch, s.query_begin + i, head, problem.queries, problem.heads)];
      for (int64_t j = 0; j < s.keys; ++j) {
        for (int64_t d = 0; d < problem.head_dim; ++d) {
          to[d] += p[static_cast<size_t>(j)] * reference.v[reference.key_at(s, j, head) + static_cast<size_t>(d)];
        }
      }
      if (lse == nullptr) return;
      const int64_t row = (s.batch * problem.heads + head) * problem.queries + s.query_begin + i;
      (*lse)[static_cast<size_t>(row)] = log_sum;
    });
  }
}

void attention_positions_backward_reference(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                                            const AttentionPositions& positions,
                                            const AttentionPositionsOptions& options,
                                            AttentionReferenceGradients& gradients) {
  const SpatialProblem spatial =
      kernels::make_spatial_problem("attention_positions_backward_reference", q, k, v, positions, options, q);
  const Problem& problem = spatial.base;
  SpatialReference reference(problem, options, q, k, v, positions);
  reference.dout = SpatialReference::values(dout);
  gradients = {};
  gradients.dq.assign(static_cast<size_t>(q.elements()), 0.0);
  gradients.dk.assign(static_cast<size_t>(k.elements()), 0.0);
  gradients.dv.assign(static_cast<size_t>(v.elements()), 0.0);
  gradients.dslopes.assign(options.alibi_slopes.size(), 0.0);
  const auto scale = static_cast<double>(problem.scale);
  for (const Sequence& s : problem.sequences) {
    for (int64_t head = 0; head < problem.heads; ++head) {
      for (int64_t i = 0; i < s.queries; ++i) {
        std::vector<double> p, dp(static_cast<size_t>(s.keys));
        reference.weights(s, i, head, p);
        const double* const cotangent = reference.query(reference.dout, s, i, head);
        double delta = 0;
        for (int64_t j = 0; j < s.keys; ++j) {
          const auto n = static_cast<size_t>(j);
          dp[n] = reference.dot(cotangent, &reference.v[reference.key_at(s, j, head)]);
          delta += p[n] * dp[n];
        }
        const size_t query_at = reference.at(s.batch, s.query_begin + i, head, problem.queries, problem.heads);
        for (int64_t j = 0; j < s.keys; ++j) {
          const auto n = static_cast<size_t>(j);
          const double ds = p[n] * (dp[n] - delta);
          const size_t key_at = reference.key_at(s, j, head);
          for (size_t d = 0; d < static_cast<size_t>(problem.head_dim); ++d) {
            gradients.dq[query_at + d] += scale * ds * reference.k[key_at + d];
            gradients.dk[key_at + d] += scale * ds * reference.q[query_at + d];
            gradients.dv[key_at + d] += p[n] * cotangent[d];
          }
          if (gradients.dslopes.empty()) continue;
          const int64_t slope = problem.biases->slopes_per_sequence ? s.number * problem.heads + head : head;
          gradients.dslopes[static_cast<size_t>(slope)] -= ds * reference.distance(s, i, j);
        }
      }
    }
  }
}

}  // namespace alibi
