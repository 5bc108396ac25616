// Products of bfloat16 matrices on CPUs that have none.
#pragma once

#include "nn/onednn.h"

namespace alibi::nn {

/// The same product, with blocks of the operands turned into float32 and multiplied as such; the workspace is the same
/// for any shape. Bits depend on the arguments only.
void run_widened(const Product& product);

/// What each thread keeps for products of this type, once it has run one: nothing where oneDNN has them.
int64_t bytes_to_widen(DType dtype);

}  // namespace alibi::nn
