#include "attention/decode/q8_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/parallel.h"

namespace alibi::kernels {
namespace {

q8_block quantize_block(const float* x) {
  constexpr float most = 127;
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < q8_block::size; ++i) {
    largest = std::max(largest, std::abs(x[i]));
    finite = finite && std::isfinite(x[i]);
  }
  q8_block block;
  block.scale = float16(largest / most);
  const auto scale = static_cast<float>(block.scale);
  if (!finite || !std::isfinite(scale)) {  // the scale makes every number of the block NaN
    block.scale = float16(std::numeric_limits<float>::quiet_NaN());
    std::fill(std::begin(block.values), std::end(block.values), int8_t{1});
    return block;
  }
  for (int64_t i = 0; i < q8_block::size; ++i) {
    const float quotient = scale > 0 ? x[i] / scale : 0;
    block.values[i] = static_cast<int8_t>(std::nearbyint(std::clamp(quotient, -most, most)));
  }
  return block;
}

}  // namespace

float quantize_row(const float* from, int64_t numbers, q8_block* to) {
  double squares = 0;
  for (int64_t at = 0; at < numbers; at += q8_block::size, ++to) {
    *to = quantize_block(from + at);
    for (int64_t i = 0; i < q8_block::size; ++i) {
      const double stored = static_cast<double>(static_cast<float>(to->scale)) * to->values[i];
      const double error = stored - static_cast<double>(from[at + i]);
      squares += error * error;
    }
  }
  const auto distance = static_cast<float>(std::sqrt(squares) * (1 + 0x1p-22));
  return std::isnan(distance) ? std::numeric_limits<float>::infinity() : distance;
}

void widen_blocks(const q8_block* from, int64_t blocks, float* to) {
  for (const q8_block* block = from; block != from + blocks; ++block) {
    const auto scale = static_cast<float>(block->scale);
    for (const int8_t value : block->values) *to++ = scale * static_cast<float>(value);
  }
}

Tensor widened_rows(const core::StateOf<KvCache>& cache, const Tensor& rows) {
  Tensor result = Tensor::empty({cache.batch, cache.length, cache.kv_heads, cache.head_dim});
  core::parallel_for(cache.batch * cache.kv_heads, [&](int64_t head) {
    const int64_t b = head / cache.kv_heads, h = head % cache.kv_heads;
    std::vector<float> wide(static_cast<size_t>(cache.stride));
    for (int64_t i = 0; i < cache.length; ++i) {
      const auto* const row = static_cast<const q8_block*>(rows.raw()) + cache.row(b, h, i) * cache.row_elements();
      widen_blocks(row, cache.row_elements(), wide.data());
      std::copy_n(wide.data(), cache.head_dim,
                  result.data<float>() + ((b * cache.length + i) * cache.kv_heads + h) * cache.head_dim);
    }
  });
  return result;
}

}  // namespace alibi::kernels
