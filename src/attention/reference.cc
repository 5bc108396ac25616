// The formula in float64, row by row. Every kernel is tested against it.
//
//   s_ij = f(scale q_i k_j') + bias(i - j) + sum of log f_t over t in (j, i]      p_ij = exp(s_ij) / sum_j exp(s_ij)
//   out_i = sum_j z_ij p_ij v_j
//
// over the keys j that row i sees, and with a sink one more j, of which s is the sink and v is 0; f(x) is x, or softcap
// tanh(x / softcap); z_ij is 0 where dropout removes a weight, and 1 / (1 - dropout) elsewhere.
#include "attention/reference.h"

#include <cmath>
#include <limits>

#include "attention/dropout.h"
#include "core/parallel.h"

namespace alibi {
namespace kernels {
namespace {

/// Rows of any data type as float64.
struct DoubleRows {
  const TensorView& rows;
  DType dtype;
  int64_t head_dim;

  void load(int64_t batch, int64_t row, int64_t head, std::vector<double>& values) const {
    values.resize(static_cast<size_t>(head_dim));
    for (int64_t i = 0; i < head_dim; ++i) {
      values[static_cast<size_t>(i)] =
          static_cast<double>(load_value(dtype, rows.data, rows.offset(batch, row, head) + i));
    }
  }
};

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

void add_scaled(double* to, double factor, const std::vector<double>& from) {
  for (size_t i = 0; i < from.size(); ++i) to[i] += factor * from[i];
}

/// One row's weights: p of keys [begin, begin + p.size()).
struct WeightRow {
  int64_t begin = 0;
  std::vector<double> p;
  std::vector<double> derivative;  ///< of each score by scale q k'
  double of_sink = 0;              ///< p of the sink
  double lse = -std::numeric_limits<double>::infinity();
};

/// log f_t of key t of a sequence, or 0 without gates.
double gate(const Problem& problem, const AttentionOptions& options, const Sequence& sequence, int64_t key,
            int64_t head) {
  if (!options.log_decay) return 0;
  const Tensor& gates = *options.log_decay;
  const KeyRow at = problem.key_row(sequence, key);
  return static_cast<double>(
      gates.data<float>()[at.batch * gates.stride(0) + at.row * gates.stride(1) + head * gates.stride(2)]);
}

WeightRow weights(const Problem& problem, const AttentionOptions& options, const Distances& distances,
                  const Sequence& sequence, int64_t head, int64_t i, const std::vector<double>& q) {
  HeadBias bias = problem.bias(sequence, head);
  const int64_t position = sequence.query_offset + i;
  bias.decay = {};  // the gates are summed here from the row backwards
  auto [begin, end] = Problem::keys_seen(bias, position, position, sequence.keys);
  for (int64_t j = end - 1; j > begin; --j) {
    if (gate(problem, options, sequence, j, head) == -HUGE_VAL) begin = j;  // ends the loop
  }
  const DoubleRows keys{problem.k, problem.dtype, problem.head_dim};
  WeightRow row{.begin = begin, .p = std::vector<double>(static_cast<size_t>(end - begin)), .derivative = {}};
  row.derivative.assign(row.p.size(), 1.0);
  std::vector<double> k;
  const auto sink = static_cast<double>(problem.sink(head));
  double max = sink;
  double decay = 0;
  for (int64_t j = end - 1; j >= begin; --j) {
    const KeyRow at = problem.key_row(sequence, j);
    keys.load(at.batch, at.row, head / problem.group(), k);
    const double x = static_cast<double>(problem.scale) * dot(q, k), capped = problem.score_scale().capped(x);
    const double of_pair =
        distances ? -bias->fall(Side::before, 1) * distances(sequence, i, j) : bias->precise_at(position - j);
    const double s = capped + of_pair + decay;
    decay += gate(problem, options, sequence, j, head);
    const auto n = static_cast<size_t>(j - begin);
    row.p[n] = s;
    if (problem.softcap > 0) row.derivative[n] = 1 - std::pow(capped / static_cast<double>(problem.softcap), 2);
    max = std::max(max, s);
  }
  if (begin == end && std::isinf(sink)) return row;
  double sum = std::exp(sink - max);
  for (double& p : row.p) sum += p = std::exp(p - max);
  for (double& p : row.p) p /= sum;
  row.of_sink = std::exp(sink - max) / sum;
  row.lse = max + std::log(sum);
  return row;
}

double keep_factor(const Problem& problem, const DropoutMask& mask, int64_t query_row, int64_t key_begin, int64_t key) {
  if (problem.dropout == 0) return 1;
  const uint32_t threshold = DropoutMask::threshold(problem.dropout);
  return mask.keeps(query_row, key_begin, key, threshold) ? 1 / (1 - static_cast<double>(threshold) * 0x1p-16) : 0;
}

size_t at(int64_t rows, int64_t heads, int64_t head_dim, int64_t b, int64_t row, int64_t head) {
  return static_cast<size_t>(((b * rows + row) * heads + head) * head_dim);
}

}  // namespace

void reference(const Problem& problem, const AttentionOptions& options, const Distances& distances,
               std::vector<double>& out, std::vector<double>* lse) {
  const int64_t rows = problem.batch * problem.heads * problem.queries;
  out.assign(static_cast<size_t>(rows * problem.head_dim), 0.0);
  if (lse != nullptr) lse->assign(static_cast<size_t>(rows), -std::numeric_limits<double>::infinity());
  const DoubleRows queries{problem.q, problem.dtype, problem.head_dim};
  const DoubleRows values{problem.v, problem.dtype, problem.head_dim};
  for (const Sequence& sequence : problem.sequences) {
    core::parallel_for(problem.heads * sequence.queries, [&](int64_t task) {
      const int64_t head = task / sequence.queries;
      const int64_t i = task % sequence.queries;
      const int64_t b = sequence.batch;
      const int64_t query_row = sequence.query_begin + i;
      const DropoutMask mask(problem.dropout_seed, b, head);
      std::vector<double> query, value;
      queries.load(b, query_row, head, query);
      const WeightRow row = weights(problem, options, distances, sequence, head, i, query);
      double* to = &out[at(problem.queries, problem.heads, problem.head_dim, b, query_row, head)];
      for (size_t n = 0; n < row.p.size(); ++n) {
        const int64_t key = row.begin + static_cast<int64_t>(n);
        const KeyRow at_key = problem.key_row(sequence, key);
        values.load(at_key.batch, at_key.row, head / problem.group(), value);
        add_scaled(to, row.p[n] * keep_factor(problem, mask, query_row, sequence.key_begin, key), value);
      }
      if (lse != nullptr)
        (*lse)[static_cast<size_t>((b * problem.heads + head) * problem.queries + query_row)] = row.lse;
    });
  }
}

void backward_reference(const Problem& problem, const AttentionOptions& options, const Distances& distances,
                        AttentionReferenceGradients& gradients) {
  const int64_t group = problem.group();
  const Biases& biases = *problem.biases;
  const auto of_queries = static_cast<size_t>(problem.batch * problem.queries * problem.heads * problem.head_dim);
  const auto of_keys = static_cast<size_t>(problem.batch * problem.keys * problem.kv_heads * problem.head_dim);
  gradients.dq.assign(of_queries, 0.0);
  gradients.dk.assign(of_keys, 0.0);
  gradients.dv.assign(of_keys, 0.0);
  gradients.dtable.assign(static_cast<size_t>(problem.has_table() ? biases.table->rows() * problem.heads : 0), 0.0);
  gradients.dslopes.assign(options.alibi_slopes.size(), 0.0);
  gradients.dsinks.assign(options.sinks.size(), 0.0);
  gradients.dlog_decay.assign(static_cast<size_t>(options.log_decay ? problem.batch * problem.keys * problem.heads : 0),
                              0.0);
  const DoubleRows queries{problem.q, problem.dtype, problem.head_dim};
  const DoubleRows keys{problem.k, problem.dtype, problem.head_dim};
  const DoubleRows values{problem.v, problem.dtype, problem.head_dim};
  const DoubleRows douts{problem.dout, problem.dtype, problem.head_dim};
  const auto backward_head = [&](const Sequence& sequence, int64_t head) {
    const int64_t b = sequence.batch;
    const DropoutMask mask(problem.dropout_seed, b, head);
    std::vector<double> query, key, value, cotangent, dp;
    for (int64_t i = 0; i < sequence.queries; ++i) {
      const int64_t query_row = sequence.query_begin + i;
      queries.load(b, query_row, head, query);
      douts.load(b, query_row, head, cotangent);
      const WeightRow row = weights(problem, options, distances, sequence, head, i, query);
      const int64_t key_begin = sequence.key_begin + row.begin;
      // dp_ij = z_ij dout_i v_j';  ds_ij = p_ij (dp_ij - sum_j p_ij dp_ij)
      dp.resize(row.p.size());
      double delta = 0;
      for (size_t n = 0; n < row.p.size(); ++n) {
        const int64_t key_row = key_begin + static_cast<int64_t>(n);
        values.load(b, key_row, head / group, value);
        const double keep = keep_factor(problem, mask, query_row, sequence.key_begin, key_row - sequence.key_begin);
        dp[n] = keep * dot(cotangent, value);
        delta += row.p[n] * dp[n];
        add_scaled(&gradients.dv[at(problem.keys, problem.kv_heads, problem.head_dim, b, key_row, head / group)],
                   keep * row.p[n], cotangent);
      }
      if (!problem.sinks.empty()) gradients.dsinks[static_cast<size_t>(head)] -= row.of_sink * delta;
      double before = 0;  // the sum of ds over the keys so far: key t's gate is in the scores of those before it
      double* dq = &gradients.dq[at(problem.queries, problem.heads, problem.head_dim, b, query_row, head)];
      for (size_t n = 0; n < row.p.size(); ++n) {
        const int64_t key_row = key_begin + static_cast<int64_t>(n);
        const int64_t distance = sequence.query_offset + i - row.begin - static_cast<int64_t>(n);
        keys.load(b, key_row, head / group, key);
        const double ds = row.p[n] * (dp[n] - delta);
        if (options.log_decay && n > 0) {
          gradients.dlog_decay[static_cast<size_t>((b * problem.keys + key_row) * problem.heads + head)] += before;
        }
        before += ds;
        const double dproduct = static_cast<double>(problem.scale) * row.derivative[n] * ds;
        add_scaled(dq, dproduct, key);
        add_scaled(&gradients.dk[at(problem.keys, problem.kv_heads, problem.head_dim, b, key_row, head / group)],
                   dproduct, query);
        if (problem.has_table()) {
          gradients.dtable[static_cast<size_t>(biases.table->row(distance) * problem.heads + head)] += ds;
        } else if (!gradients.dslopes.empty() && (distances || distance > 0 || biases.slopes_symmetric)) {
          const int64_t slope = biases.slopes_per_sequence ? sequence.number * problem.heads + head : head;
          const int64_t j = row.begin + static_cast<int64_t>(n);
          gradients.dslopes[static_cast<size_t>(slope)] -=
              ds * (distances ? distances(sequence, i, j) : static_cast<double>(std::abs(distance)));
        }
      }
    }
  };
  // Only groups run in parallel, because the heads of a group share dk and dv, and batch entries share dtable and
  // dslopes.
  core::parallel_for(problem.kv_heads, [&](int64_t kv_head) {
    for (const Sequence& sequence : problem.sequences) {
      for (int64_t g = 0; g < group; ++g) backward_head(sequence, kv_head * group + g);
    }
  });
}

}  // namespace kernels

void attention_reference(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                         std::vector<double>& out, std::vector<double>* lse) {
  kernels::reference(kernels::make_problem("attention_reference", q, k, v, q, options), options, {}, out, lse);
}

void attention_backward_reference(const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v,
                                  const AttentionOptions& options, AttentionReferenceGradients& gradients) {
  kernels::Problem problem = kernels::make_problem("attention_backward_reference", q, k, v, q, options);
  problem.dout = kernels::view_of(dout);
  kernels::backward_reference(problem, options, {}, gradients);
}

}  // namespace alibi
