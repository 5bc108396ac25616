// Replaces PyTorch's header. It declares what FlashAttention-2's sources need when there is no dropout.
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <tuple>

namespace at {
struct PhiloxCudaState {};
}  // namespace at
