#include "formats/weight_types.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/blocks.h"
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

// The numbers that are halfway between the largest one of float16 or bfloat16 and the next power of two. A block holds
// a multiple of a float16: 127 times in Q8_0, 8 times in Q4_0, and at least 63 times in Q4_K.
constexpr float kTooLargeForHalf = 65520, kTooLargeForBfloat16 = 0x1.ffp127f;

template <class T>
void encode_plain(const float* values, std::byte* block) {
  const T value(*values);
  std::memcpy(block, &value, sizeof value);
}

void encode_q8_0(const float* values, std::byte* block) {
  const q8_block made = quantized(values);
  std::memcpy(block, &made, sizeof made);
}

/// Bit for bit as NumPy code of the gguf package: the number of largest magnitude becomes -8.
void encode_q4_0(const float* values, std::byte* block) {
  float furthest = 0;
  for (int i = 0; i < 32; ++i) furthest = std::abs(values[i]) > std::abs(furthest) ? values[i] : furthest;
  const float scale = furthest / -8, inverse = std::isfinite(1 / scale) ? 1 / scale : 0;
  core::q4_block made;
  made.scale = float16(scale);
  const auto quant = [&](int i) { return std::min(15, static_cast<int>(values[i] * inverse + 8.5f)); };
  for (int i = 0; i < 16; ++i) made.quants[i] = static_cast<uint8_t>(quant(i) | quant(i + 16) << 4);
  std::memcpy(block, &made, sizeof made);
}

/// A number as scale * quant - minimum, with neither below 0.
struct Line {
  float scale = 0, minimum = 0;

  int quant(float value) const {
    return scale > 0 ? std::clamp(static_cast<int>(std::lround((value + minimum) / scale)), 0, 15) : 0;
  }
};

/// The line of least squared error for these numbers, among those that follow from a few divisions of their range by
/// regression. Large numbers count more, since products feel them more.
Line fitted_line(const float* values, int count) {
  const auto [least, most] = std::minmax_element(values, values + count);
  double squares = 0;
  for (int i = 0; i < count; ++i) squares += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  const double typical = std::sqrt(squares / count);
  Line best;
  double best_error = HUGE_VAL;
  for (int step = 0; step <= 20; step += 4) {
    Line line{.minimum = -std::min(0.0f, *least)};
    line.scale = (*most + line.minimum) / (14 + 0.1f * static_cast<float>(step));
    if (!(line.scale > 0)) return line;
    for (const bool regressed : {false, true}) {
      if (regressed) {
        double w = 0, wq = 0, wqq = 0, wx = 0, wqx = 0;
        for (int i = 0; i < count; ++i) {
          const double weight = typical + std::abs(values[i]), q = line.quant(values[i]), x = values[i];
          w += weight, wq += weight * q, wqq += weight * q * q, wx += weight * x, wqx += weight * q * x;
        }
        const double divisor = w * wqq - wq * wq;
        if (!(divisor > 0)) break;
        line = {static_cast<float>((w * wqx - wx * wq) / divisor), static_cast<float>((wq * wqx - wqq * wx) / divisor)};
        if (line.minimum < 0) line = {static_cast<float>(wqx / wqq), 0};
        if (!(line.scale > 0)) break;
      }
      double error = 0;
      for (int i = 0; i < count; ++i) {
        const double off = static_cast<double>(line.scale) * line.quant(values[i]) - line.minimum - values[i];
        error += (typical + std::abs(values[i])) * off * off;
      }
      if (error < best_error) best_error = error, best = line;
    }
  }
  return best;
}

void encode_q4_k(const float* values, std::byte* block) {
  Line lines[8];
  float max_scale = 0, max_minimum = 0;
  for (int j = 0; j < 8; ++j) {
    lines[j] = fitted_line(values + 32 * j, 32);
    max_scale = std::max(max_scale, lines[j].scale), max_minimum = std::max(max_minimum, lines[j].minimum);
  }
  core::q4_k_block made{};
  made.scale = float16(max_scale / 63), made.minimum = float16(max_minimum / 63);
  const auto d = static_cast<float>(made.scale), m = static_cast<float>(made.minimum);
  for (int j = 0; j < 8; ++j) {
    const auto six_bits = [](float value, float unit) {
      return unit > 0 ? std::clamp(static_cast<int>(std::lround(value / unit)), 0, 63) : 0;
    };
    const int scale = six_bits(lines[j].scale, d), minimum = six_bits(lines[j].minimum, m);
    if (j < 4) {
      made.scales[j] |= static_cast<uint8_t>(scale), made.scales[j + 4] |= static_cast<uint8_t>(minimum);
    } else {
      made.scales[j + 4] = static_cast<uint8_t>((scale & 15) | (minimum & 15) << 4);
      made.scales[j - 4] |= static_cast<uint8_t>(scale >> 4 << 6);
      made.scales[j] |= static_cast<uint8_t>(minimum >> 4 << 6);
    }
    const Line rounded{d * static_cast<float>(scale), m * static_cast<float>(minimum)};
    for (int i = 0; i < 32; ++i) {
      made.quants[j / 2 * 32 + i] |= static_cast<uint8_t>(rounded.quant(values[32 * j + i]) << (j % 2 * 4));
    }
  }
  std::memcpy(block, &made, sizeof made);
}

constexpr WeightType kTypes[] = {
    {"F32", 0, 1, 4, DType::float32, std::numeric_limits<float>::infinity(), decode_f32, encode_plain<float>},
    {"F16", 1, 1, 2, DType::float16, kTooLargeForHalf, decode_f16, encode_plain<float16>},
    {"BF16", 30, 1, 2, DType::bfloat16, kTooLargeForBfloat16, decode_bf16, encode_plain<bfloat16>},
    {"Q8_0", 8, 32, 34, DType::q8_0, 127 * kTooLargeForHalf, decode_q8_0, encode_q8_0},
    {"Q4_0", 2, 32, 18, DType::q4_0, 8 * kTooLargeForHalf, decode_q4_0, encode_q4_0},
    {"Q4_K", 12, 256, 144, DType::q4_k, 63 * kTooLargeForHalf, decode_q4_k, encode_q4_k},
    {"Q5_K", 13, 256, 176, DType::q5_k, 0, decode_q5_k, nullptr},
    {"Q6_K", 14, 256, 210, DType::q6_k, 0, decode_q6_k, nullptr},
};

}  // namespace

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

bool is_finite_block(DType dtype, const std::byte* block) {
  const auto is_finite = [&](int byte) { return std::isfinite(half_at(block, byte)); };
  if (dtype == DType::q6_k) return is_finite(208);
  return is_finite(0) && ((dtype != DType::q4_k && dtype != DType::q5_k) || is_finite(2));
}

const WeightType& weight_type(DType dtype) {
  const auto* found =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const auto& t) { return t.dtype == dtype; });
  check(found != std::end(kTypes), "[weights] {} is no type of weights", name_of(dtype));
  return *found;
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
