// The distances of the float64 reference. They are read from the caller's positions, not from the order of the tokens.
#include "attention/reference.h"

#include <cmath>

#include "alibi/attention_positions.h"
#include "attention/spatial/spatial.h"

namespace alibi {
namespace {

using kernels::Sequence;

/// The coordinates of one side in float64, [batch or 1, length, dims].
struct PrecisePoints {
  std::vector<double> values;
  int64_t batch, length, dims;

  explicit PrecisePoints(const Tensor& of) : batch(of.size(0)), length(of.size(1)), dims(of.size(2)) {
    const auto assign = [&](const auto& all) { values.assign(all.begin(), all.end()); };
    of.dtype() == DType::int32 ? assign(of.to_ints()) : assign(of.to_floats());
  }
  const double* at(const Sequence& s, int64_t row) const {
    return &values[static_cast<size_t>(((batch == 1 ? 0 : s.batch) * length + row) * dims)];
  }
};

kernels::Distances distances_of(const AttentionPositions& positions, const AttentionPositionsOptions& options) {
  const PrecisePoints queries(positions.q), keys(positions.k.defined() ? positions.k : positions.q);
  return [=, leading = options.leading, manhattan = options.distance == Distance::manhattan](const Sequence& s,
                                                                                             int64_t i, int64_t j) {
    if (i < leading || j < leading) return 0.0;
    const double *const x = queries.at(s, s.query_begin + i), *const y = keys.at(s, s.key_begin + j);
    double sum = 0;
    for (int64_t axis = 0; axis < keys.dims; ++axis) {
      const double part = x[axis] - y[axis];
      sum += manhattan ? std::abs(part) : part * part;
    }
    return manhattan ? sum : std::sqrt(sum);
  };
}

/// What the reference needs of the options.
AttentionOptions options_of(const AttentionPositionsOptions& options) {
  AttentionOptions result;
  result.alibi_slopes = options.alibi_slopes;
  return result;
}

}  // namespace

void attention_positions_reference(const Tensor& q, const Tensor& k, const Tensor& v,
                                   const AttentionPositions& positions, const AttentionPositionsOptions& options,
                                   std::vector<double>& out, std::vector<double>* lse) {
  const kernels::Problem problem =
      kernels::make_spatial_problem("attention_positions_reference", q, k, v, positions, options, q);
  kernels::reference(problem, options_of(options), distances_of(positions, options), out, lse);
}

void attention_positions_backward_reference(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                                            const AttentionPositions& positions,
                                            const AttentionPositionsOptions& options,
                                            AttentionReferenceGradients& gradients) {
  kernels::Problem problem =
      kernels::make_spatial_problem("attention_positions_backward_reference", q, k, v, positions, options, q);
  problem.dout = kernels::view_of(dout);
  kernels::backward_reference(problem, options_of(options), distances_of(positions, options), gradients);
}

}  // namespace alibi
