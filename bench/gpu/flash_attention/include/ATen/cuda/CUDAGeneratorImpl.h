// In place of PyTorch's header: what FlashAttention-2's sources want of it where there is no dropout.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <tuple>

namespace at {
struct PhiloxCudaState {};
}  // namespace at
