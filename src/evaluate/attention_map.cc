#include "alibi/attention_map.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "alibi/attention.h"
#include "attention/problem.h"
#include "core/check.h"
#include "core/parallel.h"
#include "model/pass.h"

namespace alibi {
namespace {

/// First distances of the bins, 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, ..., and the end of the last bin.
std::vector<int64_t> bins_up_to(int64_t end) {
  std::vector<int64_t> bins = {0, 1, 2, 3};
  for (int64_t power = 4; power < end; power *= 2) {
    bins.push_back(power);
    bins.push_back(power + power / 2);
  }
  while (bins.back() >= end) bins.pop_back();
  bins.push_back(end);
  return bins;
}

/// Mean over the distances of each bin.
std::vector<double> in_bins(const std::vector<double>& by_distance, const std::vector<int64_t>& bins) {
  std::vector<double> means;
  for (size_t i = 0; i + 1 < bins.size(); ++i) {
    double sum = 0;
    for (int64_t d = bins[i]; d < bins[i + 1]; ++d) sum += by_distance[static_cast<size_t>(d)];
    means.push_back(sum / static_cast<double>(bins[i + 1] - bins[i]));
  }
  return means;
}

/// Converts exponents of weights to weights.
void softmax(std::vector<double>& scores) {
  const double most = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - most);
  for (double& score : scores) score /= sum;
}

double slope_of(const AttentionOptions& options, int64_t head) {
  const auto index = static_cast<size_t>(head);
  return index < options.alibi_slopes.size() ? options.alibi_slopes[index] : std::numeric_limits<double>::quiet_NaN();
}

/// Value added to a score at each distance; -infinity for invisible keys.
std::vector<double> bias_of(const kernels::HeadBias& head, int64_t length) {
  std::vector<double> bias(static_cast<size_t>(length));
  for (int64_t distance = 0; distance < length; ++distance) {
    bias[static_cast<size_t>(distance)] =
        head.sees(distance) ? head->precise_at(distance) : -std::numeric_limits<double>::infinity();
  }
  return bias;
}

/// Adds the weights of the queries from `first` on to sums[distance]. q and k are [length, head_dim], of one head.
void add_weights(const Tensor& q, const Tensor& k, double scale, const std::vector<double>& bias, int64_t first,
                 std::vector<double>& sums) {
  const int64_t length = q.size(0), head_dim = q.size(1);
  const std::vector<float> queries = q.to_floats(), keys = k.to_floats();
  for (int64_t i = first; i < length; ++i) {
    std::vector<double> scores(static_cast<size_t>(i + 1));
    for (int64_t distance = 0; distance <= i; ++distance) {
      double dot = 0;
      for (int64_t e = 0; e < head_dim; ++e) {
        dot += static_cast<double>(queries[static_cast<size_t>(i * head_dim + e)]) *
               static_cast<double>(keys[static_cast<size_t>((i - distance) * head_dim + e)]);
      }
      scores[static_cast<size_t>(distance)] = dot * scale + bias[static_cast<size_t>(distance)];
    }
    softmax(scores);
    for (size_t distance = 0; distance < sums.size(); ++distance) sums[distance] += scores[distance];
  }
}

}  // namespace

AttentionMap attention_map(const LanguageModel& model, std::span<const int32_t> tokens, int64_t length,
                           int64_t windows) {
  const TransformerConfig& config = model.config().transformer;
  const auto all = static_cast<int64_t>(tokens.size());
  check(config.attention.causal,
        "[attention_map] the model is an encoder, expected a causal transformer, which has weights by distance");
  check_usage(length >= 8 && length <= all,
              "[attention_map] the length is {}, expected 8 to {}, the number of tokens of the text", length, all);
  check_usage(windows >= 1, "[attention_map] windows is {}, expected at least 1", windows);
  const int64_t first = length - length / 4, queries = length - first;
  AttentionMap map;
  map.length = length;
  map.distances = bins_up_to(first + 1);
  const auto heads = static_cast<size_t>(config.attention.heads), count = heads * static_cast<size_t>(config.layers);
  std::vector<std::vector<double>> sums(count, std::vector<double>(static_cast<size_t>(first + 1)));
  std::vector<double> slopes(count);
  std::vector<std::vector<double>> biases(count);
  for (int64_t window = 0; window < windows; ++window) {
    const int64_t begin = windows == 1 ? 0 : (all - length) * window / (windows - 1);
    Tensor ids = Tensor::empty({1, length}, DType::int32);
    std::copy_n(tokens.begin() + begin, length, ids.data<int32_t>());
    model::Pass pass;
    size_t layer = 0;
    pass.on_attention = [&](const Tensor& q, const Tensor& k, const Tensor&, const AttentionOptions& options) {
      check(!options.log_decay, "[attention_map] the layer has gates, expected a bias by distance");
      const kernels::Problem problem = kernels::make_problem("attention_map", q, k, k, q, options);
      core::parallel_for(q.size(2), [&](int64_t head) {
        const size_t index = layer * heads + static_cast<size_t>(head);
        slopes[index] = slope_of(options, head);
        biases[index] = bias_of(problem.bias(problem.sequences.front(), head), length);
        const auto of_head = [&](const Tensor& tensor, int64_t at) {
          return tensor.slice(2, at, at + 1).clone().reshape({length, tensor.size(3)});
        };
        const double usual = 1 / std::sqrt(static_cast<double>(q.size(3)));
        add_weights(of_head(q, head), of_head(k, head / problem.group()),
                    options.softmax_scale > 0 ? options.softmax_scale : usual, biases[index], first, sums[index]);
      });
      ++layer;
    };
    model::hidden(model, ids, pass);
  }
  for (size_t index = 0; index < count; ++index) {
    HeadAttention head{static_cast<int>(index / heads), static_cast<int>(index % heads), slopes[index], {}, {}};
    for (double& sum : sums[index]) sum /= static_cast<double>(windows * queries);
    head.weight = in_bins(sums[index], map.distances);
    softmax(biases[index]);
    head.bias = in_bins(biases[index], map.distances);
    map.heads.push_back(std::move(head));
  }
  return map;
}

}  // namespace alibi
