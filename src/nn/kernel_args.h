// Argument structs of kernels with many arguments.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace alibi::nn {

/// The elements that dropout keeps, determined by the random numbers of core/random.h. A threshold of 0 keeps all.
struct Dropout {
  core::Random random{0, 0};
  uint32_t threshold = 0;  ///< element i is dropped if its 24 random bits are below
  float factor = 1;        ///< factor of the kept elements
};

/// sum = x + dropout(branch), followed by a norm of sum. x and sum are [rows, features] of one data type; branch, kept
/// and y have another one. branch, sum and kept may be null; mean is null for the RMS norm. weight and bias are
/// [groups, features]: a row has those of row % groups.
struct NormForward {
  int64_t features, groups;
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

/// Overwrites dx. Alternatively, adds to dsum (float32), and writes the gradient that passes dropout to dbranch, if it
/// is not null.
struct NormBackward {
  int64_t features, groups;
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
