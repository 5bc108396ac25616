#include "nn/cross_entropy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/cross_entropy.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include <algorithm>
#include <cmath>

#include "nn/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

/// For each row: nll = lse - logit[target]. If dlogits is given, it receives gradient_scale * (softmax - one-hot of the
/// target). dlogits may be the logits.
template <class T>
void cross_entropy_rows_as(const float* logits, int64_t rows, int64_t vocab, const int32_t* targets, T* dlogits,
                           float gradient_scale, float* nll) {
  for (int64_t row = 0; row < rows; ++row, logits += vocab, dlogits += dlogits != nullptr ? vocab : 0) {
    const int32_t target = targets[row];
    if (target < 0) {
      nll[row] = 0;
      if (dlogits != nullptr) std::fill_n(dlogits, vocab, T());
      continue;
    }
    const double lse = log_sum_exp(logits, vocab, max_of(logits, vocab));
    nll[row] = static_cast<float>(lse - static_cast<double>(logits[target]));
    if (dlogits == nullptr) continue;
    const float probability = std::exp(static_cast<float>(static_cast<double>(logits[target]) - lse));
    const V norm = set(static_cast<float>(lse)), scale = set(gradient_scale);
    each_vector(vocab, [&](int64_t i, auto lanes) HWY_ATTR {
      store(hn::Mul(scale, exp(hn::Sub(load(logits + i, lanes), norm))), dlogits + i, lanes);
    });
    dlogits[target] = T(gradient_scale * (probability - 1));
  }
}

void cross_entropy_rows(const float* logits, int64_t rows, int64_t vocab, const int32_t* targets, void* dlogits,
                        DType dtype, float gradient_scale, float* nll) {
  dtype == DType::bfloat16
      ? cross_entropy_rows_as(logits, rows, vocab, targets, static_cast<bfloat16*>(dlogits), gradient_scale, nll)
      : cross_entropy_rows_as(logits, rows, vocab, targets, static_cast<float*>(dlogits), gradient_scale, nll);
}

double log_sum_exp_row(const float* logits, int64_t vocab) { return log_sum_exp(logits, vocab, max_of(logits, vocab)); }

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "core/isa.h"
#include "core/parallel.h"
#include "nn/linear.h"
#include "nn/shape.h"

namespace alibi::nn {
namespace {

HWY_EXPORT(cross_entropy_rows);
HWY_EXPORT(log_sum_exp_row);

/// dhidden and dweight are both null or both given.
void run_chunks(const char* operation, const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                float gradient_scale, std::span<float> nll, Tensor* dhidden, Tensor* dweight) {
  const Rows in = rows_of(operation, "hidden", hidden);
  check(weight.axes() == 2 && weight.contiguous(), "[{}] weight is {}, expected a contiguous matrix", operation,
        to_string(weight.shape()));
  const int64_t vocab = weight.size(0);
  const Rows projection{vocab, in.features};
  if (dweight != nullptr) check_rows(operation, "weight", weight, projection, hidden.dtype());
  check_vector(operation, "targets", targets, in.rows, DType::int32);
  check(static_cast<int64_t>(nll.size()) == in.rows, "[{}] nll holds {} values, expected {}", operation, nll.size(),
        in.rows);
  check(vocab > 0, "[{}] weight is {}, expected at least one row", operation, to_string(weight.shape()));
  if (dhidden != nullptr) check_rows(operation, "dhidden", *dhidden, in, hidden.dtype());
  if (dweight != nullptr) check_rows(operation, "dweight", *dweight, projection, DType::float32);
  const int32_t* target = targets.data<int32_t>();
  for (int64_t row = 0; row < in.rows; ++row) {
    check(target[row] >= -1 && target[row] < vocab, "[{}] target {} at row {}, expected -1 to {}", operation,
          target[row], row, vocab - 1);
  }

  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(cross_entropy_rows);
  const int64_t step = std::min(cross_entropy_chunk_rows(vocab), in.rows);
  const Tensor all_logits = Tensor::empty({step, vocab});
  // The gradients of the logits overwrite the logits, unless their data type differs.
  const bool apart = dhidden != nullptr && hidden.dtype() != DType::float32;
  const Tensor all_dlogits = apart ? Tensor::empty({step, vocab}, hidden.dtype()) : all_logits;
  const Tensor flat_hidden = hidden.reshape({in.rows, in.features});
  // One chunk after the other, each divided into tasks, so that the sums over chunks have a fixed order and only one
  // chunk's logits are in memory.
  for (int64_t begin = 0; begin < in.rows; begin += step) {
    const int64_t end = std::min(begin + step, in.rows);
    const Tensor x = flat_hidden.slice(0, begin, end);
    Tensor logits = all_logits.slice(0, 0, end - begin);
    const Tensor dlogits = all_dlogits.slice(0, 0, end - begin);
    matmul(x, false, weight, true, logits, false);
    core::parallel_ranges(end - begin, rows_per_task(vocab), [&](int64_t first, int64_t last) {
      const Tensor rows = dlogits.slice(0, first, last);
      kernel(logits.data<float>() + first * vocab, last - first, vocab, target + begin + first,
             dhidden != nullptr ? rows.raw() : nullptr, rows.dtype(), gradient_scale, nll.data() + begin + first);
    });
    if (dhidden == nullptr) continue;
    Tensor dx = dhidden->reshape({in.rows, in.features}).slice(0, begin, end);
    matmul(dlogits, false, weight, false, dx, false);
    matmul(dlogits, true, x, false, *dweight, true);
  }
}

}  // namespace

int64_t cross_entropy_chunk_rows(int64_t vocab) {
  const auto rows_of = [&](int64_t elements) { return elements / std::max<int64_t>(vocab, 1) / 64 * 64; };
  // With a small vocabulary a chunk has more rows, so that many threads have work.
  return std::max(std::clamp<int64_t>(rows_of(int64_t{1} << 24), 64, 1024), std::min<int64_t>(rows_of(1 << 20), 4096));
}

void log_sum_exp(const Tensor& logits, std::span<double> result) {
  const Rows rows = rows_of("log_sum_exp", "logits", logits);
  check(static_cast<int64_t>(result.size()) == rows.rows && rows.features > 0 && logits.dtype() == DType::float32,
        "[log_sum_exp] logits are {} {}, expected float32 [{}, at least 1]", name_of(logits.dtype()),
        to_string(logits.shape()), result.size());
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(log_sum_exp_row);
  core::parallel_for(rows.rows, [&](int64_t row) {
    result[static_cast<size_t>(row)] = kernel(logits.data<float>() + row * rows.features, rows.features);
  });
}

void linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& targets, std::span<float> nll) {
  run_chunks("linear_cross_entropy", hidden, weight, targets, 0, nll, nullptr, nullptr);
}

void linear_cross_entropy_with_gradients(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                                         float gradient_scale, std::span<float> nll, Tensor& dhidden, Tensor& dweight) {
  run_chunks("linear_cross_entropy_with_gradients", hidden, weight, targets, gradient_scale, nll, &dhidden, &dweight);
}

}  // namespace alibi::nn
#endif  // HWY_ONCE
