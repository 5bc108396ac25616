// What kernels of every instruction set are given, where a list of arguments would be too long.
#pragma once

#include <cstdint>

namespace alibi::nn {

/// x and y are [rows, features] of the activations' type; mean is null for the RMS norm.
struct NormForward {
  int64_t features;
  const void* x;
  const float* weight;
  const float* bias;
  float eps;
  void* y;
  float* mean;
  float* rstd;
};

struct NormBackward {
  int64_t features;
  const void* dy;
  const void* x;
  const float* weight;
  const float* mean;
  const float* rstd;
  void* dx;
};

struct AdamWStep {
  float* weight;
  const float* gradient;
  float* m;
  float* v;
  float gradient_factor;
  float beta1, beta2;
  float rest1, rest2;  ///< 1 - beta
  float decay;         ///< 1 - learning rate * weight decay
  float rate;          ///< learning rate / (1 - beta1^step)
  float v_factor;      ///< 1 / sqrt(1 - beta2^step)
  float eps;
};

struct NagStep {
  float* weight;
  const float* gradient;
  float* buffer;
  float decay;  ///< 1 - learning rate * weight decay
  float look;   ///< momentum^2 c: of the buffer, in the weight
  float keep;   ///< momentum c: of the buffer, in itself
  float reach;  ///< (1 + momentum) * learning rate * gradient factor
  float step;   ///< learning rate * gradient factor
};

}  // namespace alibi::nn
