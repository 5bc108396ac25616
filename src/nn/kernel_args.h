// What kernels of every instruction set are given, where a list of arguments would be too long.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace alibi::nn {

/// Elements that dropout keeps, as core/random.h tells; threshold 0 keeps all.
struct Dropout {
  core::Random random{0, 0};
  uint32_t threshold = 0;  ///< element i is dropped if its 24 random bits are below
  float factor = 1;        ///< of the others
};

/// sum = x + dropout(branch), and the norm of it. x and sum are [rows, features] of one type, branch, kept and y of
/// another; branch, sum and kept may be null, mean is for the RMS norm.
struct NormForward {
  int64_t features;
  const void* x;
  const void* branch;
  Dropout dropout;
  void* sum;
  void* kept;
  const float* weight;
  const float* bias;
  float eps;
  void* y;
  float* mean;
  float* rstd;
};

/// dx is overwritten; or dsum (float32) is added to and dbranch, if there is one, is what dropout lets through of it.
struct NormBackward {
  int64_t features;
  const void* dy;
  const void* x;
  const float* weight;
  const float* mean;
  const float* rstd;
  void* dx;
  float* dsum;
  void* dbranch;
  Dropout dropout;
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
