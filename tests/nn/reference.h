// The neural-network operations written plainly in float64, straight from their definitions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "alibi/transformer.h"

namespace alibi::test {

using Doubles = std::vector<double>;

inline size_t at(int64_t index) { return static_cast<size_t>(index); }

/// [m, n] = op(a) [m, k] * op(b) [k, n], all contiguous.
inline Doubles matmul_reference(const Doubles& a, bool transpose_a, const Doubles& b, bool transpose_b, int64_t m,
                                int64_t n, int64_t k) {
  Doubles c(at(m * n));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p) {
        sum += a[at(transpose_a ? p * m + i : i * k + p)] * b[at(transpose_b ? j * k + p : p * n + j)];
      }
      c[at(i * n + j)] = sum;
    }
  }
  return c;
}

/// x [rows, n] -> y; bias may be empty. `centered` tells layer norm from RMS norm.
inline Doubles norm_reference(const Doubles& x, const Doubles& weight, const Doubles& bias, double eps, bool centered) {
  const size_t n = weight.size();
  Doubles y(x.size());
  for (size_t begin = 0; begin < x.size(); begin += n) {
    double mean = 0, square = 0;
    for (size_t i = 0; i < n && centered; ++i) mean += x[begin + i] / static_cast<double>(n);
    for (size_t i = 0; i < n; ++i) square += std::pow(x[begin + i] - mean, 2) / static_cast<double>(n);
    for (size_t i = 0; i < n; ++i) {
      y[begin + i] = (x[begin + i] - mean) / std::sqrt(square + eps) * weight[i] + (bias.empty() ? 0 : bias[i]);
    }
  }
  return y;
}

inline double gelu_reference(double x) { return x * std::erfc(-x / std::numbers::sqrt2) / 2; }
inline double silu_reference(double x) { return x / (1 + std::exp(-x)); }

/// x [rows, features or 2 * features] -> y [rows, features]
inline Doubles activation_reference(Activation kind, const Doubles& x, int64_t features) {
  const bool gated = kind == Activation::swiglu || kind == Activation::geglu || kind == Activation::reglu;
  Doubles y(gated ? x.size() / 2 : x.size());
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t n = at(features), row = i / n, column = i % n;
    const double gate = gated ? x[2 * row * n + column] : x[i];
    const double up = gated ? x[(2 * row + 1) * n + column] : 1;
    switch (kind) {
      case Activation::gelu:
      case Activation::geglu:
        y[i] = gelu_reference(gate) * up;
        break;
      case Activation::gelu_tanh:
        y[i] = gate / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (gate + 0.044715 * std::pow(gate, 3))));
        break;
      case Activation::relu:
      case Activation::reglu:
        y[i] = std::max(gate, 0.0) * up;
        break;
      case Activation::relu2:
        y[i] = std::pow(std::max(gate, 0.0), 2);
        break;
      case Activation::swiglu:
        y[i] = silu_reference(gate) * up;
        break;
    }
  }
  return y;
}

/// Negative log-likelihood of each row of logits [rows, vocab]; 0 where the target is -1.
inline Doubles cross_entropy_reference(const Doubles& logits, const std::vector<int32_t>& targets) {
  const size_t vocab = logits.size() / targets.size();
  Doubles nll(targets.size());
  for (size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] < 0) continue;
    const double* x = logits.data() + row * vocab;
    const double top = *std::max_element(x, x + vocab);
    double sum = 0;
    for (size_t i = 0; i < vocab; ++i) sum += std::exp(x[i] - top);
    nll[row] = std::log(sum) + top - x[at(targets[row])];
  }
  return nll;
}

}  // namespace alibi::test
