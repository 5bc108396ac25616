// Products without oneDNN.
#pragma once

#include "nn/onednn.h"

namespace alibi::nn {

/// The same product, one element after the other, summed in double precision: slow, and dependent on nothing.
void run_plainly(const Product& product);

/// The same transposition as transpose().
void turn_plainly(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to);

}  // namespace alibi::nn
