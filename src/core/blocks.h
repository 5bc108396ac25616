// Blocks of quantized weights, as GGUF files store them (the layouts are those of ggml-common.h). q8_block is public.
#pragma once

#include <cstdint>

#include "alibi/tensor.h"

namespace alibi::core {

/// Number i is scale * (quant i - 8). The quants of the first 16 numbers are the low halves of the bytes.
struct q4_block {
  static constexpr int64_t size = 32;
  float16 scale;
  uint8_t quants[16];
};

/// Number i of group j = i / 32 is scale * scale j * quant i - minimum * minimum j. `scales` has 6 bits for each scale
/// and minimum. Of each 32 bytes of `quants`, the low halves belong to one group and the high halves to the next.
struct q4_k_block {
  static constexpr int64_t size = 256;
  float16 scale, minimum;
  uint8_t scales[12];
  uint8_t quants[128];
};

/// The same with a fifth bit: bit j of byte i % 32.
struct q5_k_block {
  static constexpr int64_t size = 256;
  float16 scale, minimum;
  uint8_t scales[12];
  uint8_t fifth_bits[32];
  uint8_t quants[128];
};

/// Number i is scale * scales[i / 16] * (quant i - 32). Of each 128 quants, the low four bits are in 64 bytes, whose
/// low halves belong to the first 64, and the high two bits in 32 bytes, whose lowest bits belong to the first 32.
struct q6_k_block {
  static constexpr int64_t size = 256;
  uint8_t low_bits[128];
  uint8_t high_bits[64];
  int8_t scales[16];
  float16 scale;
};

static_assert(sizeof(q8_block) == 34 && sizeof(q4_block) == 18 && sizeof(q4_k_block) == 144 &&
              sizeof(q5_k_block) == 176 && sizeof(q6_k_block) == 210 && alignof(q6_k_block) == 2);

/// use(x) with x as a pointer to the elements of the type of weights, float32 for any other type.
template <class Use>
auto as_type(const void* x, DType dtype, const Use& use) {
  switch (dtype) {
    case DType::bfloat16:
      return use(static_cast<const bfloat16*>(x));
    case DType::float16:
      return use(static_cast<const float16*>(x));
    case DType::q8_0:
      return use(static_cast<const q8_block*>(x));
    case DType::q4_0:
      return use(static_cast<const q4_block*>(x));
    case DType::q4_k:
      return use(static_cast<const q4_k_block*>(x));
    case DType::q5_k:
      return use(static_cast<const q5_k_block*>(x));
    case DType::q6_k:
      return use(static_cast<const q6_k_block*>(x));
    default:
      return use(static_cast<const float*>(x));
  }
}

}  // namespace alibi::core
