// Arguments of kernels that are too many for a list.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace alibi::nn {

/// Which elements dropout keeps, by the random numbers of core/random.h. Threshold 0 keeps all.
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

}  // namespace alibi::nn
