#include "formats/weight_types.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/check.h"
#include "core/float16.h"

// The layouts of blocks are those of ggml (ggml-common.h). Block letters there: d a scale, m a minimum, q the quants.

namespace alibi::formats {
namespace {

uint8_t byte_at(const std::byte* block, int i) { return std::to_integer<uint8_t>(block[i]); }
int8_t signed_at(const std::byte* block, int i) { return static_cast<int8_t>(byte_at(block, i)); }

float half_at(const std::byte* block, int byte) {
  uint16_t bits;
  std::memcpy(&bits, block + byte, sizeof bits);
  return core::float16_to_float(bits);
}

void decode_f32(const std::byte* block, float* out) { std::memcpy(out, block, sizeof(float)); }
void decode_f16(const std::byte* block, float* out) { *out = half_at(block, 0); }
void decode_bf16(const std::byte* block, float* out) {
  uint16_t bits;
  std::memcpy(&bits, block, sizeof bits);
  *out = std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

/// f16 d; 32 signed bytes
void decode_q8_0(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(signed_at(block, 2 + i));
}

/// f16 d; 32 numbers of 4 bits, the first 16 in the low halves of the bytes
void decode_q4_0(const std::byte* block, float* out) {
  const float d = half_at(block, 0);
  for (int i = 0; i < 16; ++i) {
    const int q = byte_at(block, 2 + i);
    out[i] = d * static_cast<float>((q & 15) - 8);
    out[i + 16] = d * static_cast<float>((q >> 4) - 8);
  }
}

struct ScaleAndMinimum {
  float scale, minimum;
};
/// Of sub-block j: 6 bits each, of which 8 and 8 are packed into 12 bytes.
ScaleAndMinimum scale_of_k_block(const std::byte* packed, int j) {
  if (j < 4) return {static_cast<float>(byte_at(packed, j) & 63), static_cast<float>(byte_at(packed, j + 4) & 63)};
  const int high_scale = byte_at(packed, j - 4) >> 6, high_minimum = byte_at(packed, j) >> 6;
  return {static_cast<float>((byte_at(packed, j + 4) & 15) | (high_scale << 4)),
          static_cast<float>((byte_at(packed, j + 4) >> 4) | (high_minimum << 4))};
}

/// f16 d, f16 m; 12 bytes of scales; for Q5_K 32 bytes of fifth bits; 128 bytes of 4 bits
void decode_k_block(const std::byte* block, int quants, bool has_fifth_bit, float* out) {
  const float d = half_at(block, 0), m = half_at(block, 2);
  for (int pair = 0; pair < 4; ++pair) {
    for (int half = 0; half < 2; ++half) {
      const int j = 2 * pair + half;
      const auto [scale, minimum] = scale_of_k_block(block + 4, j);
      for (int i = 0; i < 32; ++i) {
        int q = (byte_at(block, quants + 32 * pair + i) >> (4 * half)) & 15;
        if (has_fifth_bit) q += ((byte_at(block, 16 + i) >> j) & 1) * 16;
        out[32 * j + i] = d * scale * static_cast<float>(q) - m * minimum;
      }
    }
  }
}
void decode_q4_k(const std::byte* block, float* out) { decode_k_block(block, 16, false, out); }
void decode_q5_k(const std::byte* block, float* out) { decode_k_block(block, 48, true, out); }

/// 128 bytes of low 4 bits; 64 bytes of high 2 bits; 16 signed scales; f16 d
void decode_q6_k(const std::byte* block, float* out) {
  const float d = half_at(block, 208);
  for (int i = 0; i < 256; ++i) {
    const int part = i / 128, row = i % 128 / 32, column = i % 32;
    const int low = (byte_at(block, 64 * part + 32 * (row % 2) + column) >> (4 * (row / 2))) & 15;
    const int high = (byte_at(block, 128 + 32 * part + column) >> (2 * row)) & 3;
    out[i] = d * static_cast<float>(signed_at(block, 192 + i / 16) * ((low | (high << 4)) - 32));
  }
}

// The numbers that are halfway between the largest one of float16 or bfloat16 and the next power of two. A block of
// Q8_0 holds up to 127 times a float16.
constexpr float kTooLargeForHalf = 65520, kTooLargeForBfloat16 = 0x1.ffp127f;

constexpr WeightType kTypes[] = {
    {"F32", 0, 1, 4, std::numeric_limits<float>::infinity(), decode_f32},
    {"F16", 1, 1, 2, kTooLargeForHalf, decode_f16},
    {"BF16", 30, 1, 2, kTooLargeForBfloat16, decode_bf16},
    {"Q8_0", 8, 32, 34, 127 * kTooLargeForHalf, decode_q8_0},
    {"Q4_0", 2, 32, 18, 0, decode_q4_0},
    {"Q4_K", 12, 256, 144, 0, decode_q4_k},
    {"Q5_K", 13, 256, 176, 0, decode_q5_k},
    {"Q6_K", 14, 256, 210, 0, decode_q6_k},
};

}  // namespace

DType kept_type(const WeightType& type) {
  if (type.name == "BF16") return DType::bfloat16;
  if (type.name == "F16") return DType::float16;
  return type.is_plain() ? DType::float32 : DType::q8_0;
}

void check_fits(std::span<const float> values, const WeightType& type, std::string_view tensor, int64_t first) {
  const auto fits = [&](float value) { return std::abs(value) < type.too_large; };
  const auto bad = std::find_if_not(values.begin(), values.end(), fits);
  if (bad == values.end()) return;
  check(std::isfinite(*bad), "[weights] \"{}\": number {} is {}, expected finite numbers", tensor,
        first + (bad - values.begin()), *bad);
  fail(
      "[weights] \"{}\": number {} is {}, but {} holds only numbers below {:.5g}; choose bf16 (--type bf16 of convert, "
      "--weights bf16 of other commands)",
      tensor, first + (bad - values.begin()), *bad, type.name, type.too_large);
}

q8_block quantized(const float* values) {
  float largest = 0;
  for (int64_t i = 0; i < q8_block::size; ++i) largest = std::max(largest, std::abs(values[i]));
  const float scale = largest / 127, inverse = scale == 0 ? 0 : 1 / scale;
  q8_block block;
  block.scale = float16(scale);
  for (int64_t i = 0; i < q8_block::size; ++i) block.values[i] = static_cast<int8_t>(std::round(values[i] * inverse));
  return block;
}

void requantize(const WeightType& type, const std::byte* block, q8_block* out) {
  if (type.name == "Q8_0") {
    std::memcpy(out, block, sizeof *out);
  } else if (type.name == "Q4_0") {
    std::memcpy(&out->scale, block, sizeof out->scale);
    for (int i = 0; i < 16; ++i) {
      const int q = byte_at(block, 2 + i);
      out->values[i] = static_cast<int8_t>((q & 15) - 8);
      out->values[i + 16] = static_cast<int8_t>((q >> 4) - 8);
    }
  } else {
    constexpr int most = 256;
    float values[most];
    type.decode(block, values);
    for (int at = 0; at < type.block_elements; at += q8_block::size) *out++ = quantized(values + at);
  }
}

const WeightType* weight_type(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return t.name == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

const WeightType* weight_type_of_gguf(uint32_t id) {
  const auto* found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return t.gguf_id == id; });
  return found == std::end(kTypes) ? nullptr : found;
}

std::string weight_type_names() {
  std::string names;
  for (const WeightType& type : kTypes) names.append(names.empty() ? "" : ", ").append(type.name);
  return names;
}

}  // namespace alibi::formats
