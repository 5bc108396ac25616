// A position method of your own: Kerple's logarithmic bias, -r1 * log(1 + r2 * distance), with r1 and r2 learned for
// each head (Chi et al. 2022, arXiv 2205.09921). Parameters are fitted at length 64 and used at length 1024.
#include <alibi/alibi.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

namespace {

constexpr int64_t kHeads = 4, kHeadDim = 16;

struct Kerple {
  std::vector<double> log_r1, log_r2;  // [heads]; logarithms, so that r1 and r2 stay positive

  /// [distances, heads]: the bias of each head at each distance.
  alibi::Tensor table(int64_t distances) const {
    alibi::Tensor table({distances, kHeads});
    for (int64_t d = 0; d < distances; ++d) {
      for (int64_t h = 0; h < kHeads; ++h) {
        table.data<float>()[d * kHeads + h] = float(-std::exp(log_r1[h]) * std::log1p(std::exp(log_r2[h]) * double(d)));
      }
    }
    return table;
  }

  /// Gradients of log_r1 and log_r2, from the gradient of the table.
  Kerple backward(const alibi::Tensor& dtable) const {
    Kerple gradient{std::vector<double>(kHeads), std::vector<double>(kHeads)};
    for (int64_t d = 0; d < dtable.size(0); ++d) {
      for (int64_t h = 0; h < kHeads; ++h) {
        const double dbias = dtable.data<float>()[d * kHeads + h];
        const double r1 = std::exp(log_r1[h]), r2d = std::exp(log_r2[h]) * double(d);
        gradient.log_r1[h] -= dbias * r1 * std::log1p(r2d);
        gradient.log_r2[h] -= dbias * r1 * r2d / (1 + r2d);
      }
    }
    return gradient;
  }
};

alibi::Tensor random(int64_t length, unsigned seed) {
  alibi::Tensor x({1, length, kHeads, kHeadDim});  // [batch, length, heads, head_dim]
  std::mt19937 numbers(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < x.elements(); ++i) {
    x.data<float>()[i] = normal(numbers);
  }
  return x;
}

/// Mean squared difference of the attention with this method and with the target; and its gradient, if asked.
double loss(const Kerple& method, const Kerple& target, int64_t length, Kerple* gradient = nullptr) {
  const alibi::Tensor q = random(length, 1), k = random(length, 2), v = random(length, 3);
  alibi::AttentionOptions options;  // causal by default
  options.bias_by_distance = target.table(length);
  const alibi::Tensor expected = alibi::attention(q, k, v, options);
  options.bias_by_distance = method.table(length);
  alibi::AttentionState state;
  const alibi::Tensor out = alibi::attention(q, k, v, options, &state);

  alibi::Tensor dout(out.shape());
  double sum = 0;
  const double count = double(out.elements());
  for (int64_t i = 0; i < out.elements(); ++i) {
    const double difference = double(out.data<float>()[i]) - double(expected.data<float>()[i]);
    sum += difference * difference / count;
    dout.data<float>()[i] = float(2 * difference / count);
  }
  if (gradient != nullptr) {
    alibi::Tensor dq(q.shape()), dk(k.shape()), dv(v.shape()), dtable({length, kHeads});
    alibi::attention_backward(dout, q, k, v, out, state, options, dq, dk, dv, {.dtable = &dtable});
    *gradient = method.backward(dtable);
  }
  return sum;
}

}  // namespace

int main() {
  const Kerple target{{std::log(0.25), std::log(0.5), std::log(1.0), std::log(2.0)}, std::vector<double>(kHeads, 0)};
  Kerple method{std::vector<double>(kHeads, std::log(0.7)), std::vector<double>(kHeads, std::log(0.5))};

  // The gradient beside a difference quotient.
  Kerple first, gradient, moved = method;
  const double before = loss(method, target, 64, &first);
  moved.log_r1[0] += 0.01;
  method.log_r1[0] -= 0.01;
  const double quotient = (loss(moved, target, 64) - loss(method, target, 64)) / 0.02;
  method.log_r1[0] += 0.01;
  std::printf("gradient %.6f, difference quotient %.6f\n", first.log_r1[0], quotient);

  for (int step = 0; step < 1500; ++step) {
    loss(method, target, 64, &gradient);
    for (int h = 0; h < kHeads; ++h) {
      method.log_r1[h] -= 5 * gradient.log_r1[h];
      method.log_r2[h] -= 5 * gradient.log_r2[h];
    }
  }
  std::printf("loss at length 64: %.6f before, %.6f after\n", before, loss(method, target, 64));
  std::printf("loss at length 1024: %.6f\n", loss(method, target, 1024));
  for (int h = 0; h < kHeads; ++h) {
    std::printf("head %d: r1 %.2f, expected %.2f\n", h, std::exp(method.log_r1[h]), std::exp(target.log_r1[h]));
  }
  const bool learned =
      std::fabs(first.log_r1[0] - quotient) < 0.01 * std::fabs(quotient) && loss(method, target, 1024) < 1e-3 * before;
  return learned ? 0 : 1;
}
