#include "nn/adaptive_softmax.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/adaptive_softmax.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "nn/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

/// Replaces a row of logits by prior + log softmax(logits).
void log_softmax_row(float* logits, int64_t n, float prior) {
  const double lse = log_sum_exp(logits, n, max_of(logits, n));
  const V shift = set(static_cast<float>(static_cast<double>(prior) - lse));
  each_vector(
      n, [&](int64_t i, auto lanes) HWY_ATTR { store(hn::Add(load(logits + i, lanes), shift), logits + i, lanes); });
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <cstring>

#include "core/isa.h"
#include "core/parallel.h"
#include "nn/cross_entropy.h"
#include "nn/elementwise.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/shape.h"

// Dimension letters: R rows, n rows of a band, d width of the model, d_b and V_b width and words of a band.

namespace alibi::nn {
namespace {

HWY_EXPORT(log_softmax_row);

/// The targets of the first softmax: the target itself, or the entry that represents its band.
Tensor head_targets(const Tensor& targets, const std::vector<BandRows>& bands, int64_t words) {
  Tensor result = targets.clone();
  for (size_t b = 1; b < bands.size(); ++b) {
    for (int64_t i = 0; i < bands[b].count(); ++i) {
      result.data<int32_t>()[bands[b].rows.data<int32_t>()[i]] =
          static_cast<int32_t>(words) + static_cast<int32_t>(b) - 1;
    }
  }
  return result;
}

struct Training {
  float gradient_scale, dropout;
  const core::Random& random;
  Tensor& dhidden;
  AdaptiveWeights& gradients;

  /// The random numbers of dropout for the hidden states, or for those of a band.
  core::Random draws(size_t band) const { return core::Random(random.seed(), core::mix(random.stream(), band)); }
};

/// Processes the rows of one band: adds to nll, dhidden and the gradients. Dropout has been applied to hidden [R, d].
void run_band(const Tensor& hidden, const AdaptiveWeights& weights, size_t b, const BandRows& band,
              std::span<float> nll, const Training* training) {
  const int64_t count = band.count(), width = weights.tables[b].size(1);
  const DType dtype = hidden.dtype();
  Tensor states = Tensor::empty({count, hidden.size(1)}, dtype);  // [n, d]
  embedding(band.rows, hidden, 1, states);                        // gathers the band's rows
  Tensor projected = Tensor::empty({count, width}, dtype);        // [n, d_b]
  matmul(states, false, weights.projections[b], false, projected, false);
  std::vector<float> own(static_cast<size_t>(count));
  if (training == nullptr) {
    linear_cross_entropy(projected, weights.tables[b], band.ids, own);
  } else {
    const Training& t = *training;
    if (t.dropout > 0) dropout(projected, t.dropout, t.draws(b), projected);
    Tensor dprojected = Tensor::empty({count, width}, dtype);
    linear_cross_entropy_with_gradients(projected, weights.tables[b], band.ids, t.gradient_scale, own, dprojected,
                                        t.gradients.tables[b]);
    if (t.dropout > 0) dropout_backward(dprojected, t.dropout, t.draws(b), dprojected);
    // projected = states * projection
    matmul(states, true, dprojected, false, t.gradients.projections[b], true);
    matmul(dprojected, false, weights.projections[b], true, states,
           false);  // from here on `states` contains its gradient
    scatter_rows(states, band.rows, t.dhidden, true);
  }
  const int32_t* rows = band.rows.data<int32_t>();
  for (int64_t i = 0; i < count; ++i) nll[static_cast<size_t>(rows[i])] += own[static_cast<size_t>(i)];
}

void run_bands(const char* operation, const Tensor& hidden_in, const AdaptiveWeights& weights, const Tensor& targets,
               std::span<float> nll, const Training* training) {
  check_weights(operation, weights, hidden_in.dtype());
  const Rows in = rows_of(operation, "hidden", hidden_in);
  check_rows(operation, "hidden", hidden_in, {in.rows, weights.d()}, hidden_in.dtype());
  check_vector(operation, "targets", targets, in.rows, DType::int32);
  check(static_cast<int64_t>(nll.size()) == in.rows, "[{}] nll holds {} values, expected {}", operation, nll.size(),
        in.rows);
  const std::vector<BandRows> bands = rows_by_band(operation, "target", targets, -1, weights);
  const Tensor head = head_targets(targets, bands, weights.band_size(0));

  Tensor hidden = hidden_in.reshape({in.rows, in.features});
  if (training == nullptr) {
    linear_cross_entropy(hidden, weights.tables[0], head, nll);
  } else {
    check_gradients(operation, training->gradients, weights);
    check_rows(operation, "dhidden", training->dhidden, in, hidden.dtype());
    if (training->dropout > 0) {
      const Tensor all = hidden;
      hidden = Tensor::empty(all.shape(), all.dtype());
      dropout(all, training->dropout, training->draws(0), hidden);
    }
    linear_cross_entropy_with_gradients(hidden, weights.tables[0], head, training->gradient_scale, nll,
                                        training->dhidden, training->gradients.tables[0]);
  }
  for (size_t b = 1; b < bands.size(); ++b) {
    if (bands[b].count() > 0) run_band(hidden, weights, b, bands[b], nll, training);
  }
  if (training != nullptr && training->dropout > 0) {
    dropout_backward(training->dhidden, training->dropout, training->draws(0), training->dhidden);
  }
}

}  // namespace

void adaptive_cross_entropy(const Tensor& hidden, const AdaptiveWeights& weights, const Tensor& targets,
                            std::span<float> nll) {
  run_bands("adaptive_cross_entropy", hidden, weights, targets, nll, nullptr);
}

void adaptive_cross_entropy_with_gradients(const Tensor& hidden, const AdaptiveWeights& weights, const Tensor& targets,
                                           float gradient_scale, float dropout_probability, const core::Random& random,
                                           std::span<float> nll, Tensor& dhidden, AdaptiveWeights& gradients) {
  const Training training{gradient_scale, dropout_probability, random, dhidden, gradients};
  run_bands("adaptive_cross_entropy_with_gradients", hidden, weights, targets, nll, &training);
}

void adaptive_log_probabilities(const Tensor& hidden_in, const AdaptiveWeights& weights, Tensor& log_probabilities) {
  const char* operation = "adaptive_log_probabilities";
  check_weights(operation, weights, hidden_in.dtype());
  const Rows in = rows_of(operation, "hidden", hidden_in);
  check_rows(operation, "hidden", hidden_in, {in.rows, weights.d()}, hidden_in.dtype());
  const int64_t vocab = weights.vocab_size(), words = weights.band_size(0);
  check_rows(operation, "log_probabilities", log_probabilities, {in.rows, vocab}, DType::float32);
  const Tensor hidden = hidden_in.reshape({in.rows, in.features}), all = log_probabilities.reshape({in.rows, vocab});
  core::prepare_dispatch();
  const auto log_softmax = HWY_DYNAMIC_DISPATCH(log_softmax_row);

  constexpr int64_t max_rows = 256;  // rows whose first softmax is in memory at a time, in addition to the result
  const int64_t step = std::min(in.rows, max_rows), head_size = weights.tables[0].size(0);
  const Tensor all_heads = Tensor::empty({step, head_size});
  for (int64_t begin = 0; begin < in.rows; begin += step) {
    const int64_t count = std::min(step, in.rows - begin);
    const Tensor states = hidden.slice(0, begin, begin + count);
    Tensor out = all.slice(0, begin, begin + count), head = all_heads.slice(0, 0, count);
    matmul(states, false, weights.tables[0], true, head, false);
    core::parallel_for(count, [&](int64_t row) {
      float* logits = head.data<float>() + row * head_size;
      log_softmax(logits, head_size, 0);
      std::memcpy(out.data<float>() + row * vocab, logits, static_cast<size_t>(words) * sizeof(float));
    });
    int64_t first = words;
    for (int band = 1; band < weights.bands(); ++band) {
      const auto b = static_cast<size_t>(band);
      const int64_t size = weights.band_size(band);
      Tensor projected = Tensor::empty({count, weights.tables[b].size(1)}, hidden.dtype());
      matmul(states, false, weights.projections[b], false, projected, false);
      Tensor logits = out.slice(1, first, first + size);
      matmul(projected, false, weights.tables[b], true, logits, false);
      core::parallel_for(count, [&](int64_t row) {
        log_softmax(logits.data<float>() + row * vocab, size, head.data<float>()[row * head_size + words + band - 1]);
      });
      first += size;
    }
  }
}

}  // namespace alibi::nn
#endif  // HWY_ONCE
