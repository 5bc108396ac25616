// Products of a few rows with a large matrix, as in writing token by token: what they cost is reading the matrix.
#pragma once

#include "nn/onednn.h"

namespace alibi::nn {

/// Whether a product is one of those: up to eight rows, both operands inner axis first.
bool is_skinny(const Product& product);

/// The product, in tasks of rows of b. Each element of c is summed in an order that depends on k alone.
void skinny_gemm(const Product& product);

}  // namespace alibi::nn
