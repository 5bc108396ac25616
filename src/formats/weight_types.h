// The types that weights have in files: plain numbers, and blocks of quantized ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "alibi/tensor.h"

namespace alibi::formats {

/// A type that can be read as float32. Quantized types store blocks of elements that share their scales.
struct WeightType {
  std::string_view name;  ///< as safetensors or GGUF name it
  uint32_t gguf_id;       ///< its number in GGUF files
  int block_elements;     ///< 1: plain numbers
  int block_bytes;
  DType dtype;      ///< as it is kept in memory
  float too_large;  ///< numbers of this magnitude and above become infinite; 0: the type is only read
  /// Writes the elements of one block. `block` need not be aligned.
  void (*decode)(const std::byte* block, float* out);
  /// Makes a block of the nearest numbers; null: the type is only read.
  void (*encode)(const float* values, std::byte* block);

  bool is_plain() const { return block_elements == 1; }
};

/// Throws Error that names the tensor if one of the numbers is not finite or is too large for the type. `first` is the
/// index of the first number in the tensor.
void check_fits(std::span<const float> values, const WeightType& type, std::string_view tensor, int64_t first = 0);

/// 32 numbers as a block of q8_0, rounded as NumPy code of the gguf package does: halves away from zero.
q8_block quantized(const float* values);
/// Whether one of the scales of a block is infinite or NaN.
bool is_finite_block(DType dtype, const std::byte* block);

/// The type that a data type of weights has in files.
const WeightType& weight_type(DType dtype);
/// Null: there is no such type, or no reader for it.
const WeightType* weight_type(std::string_view name);
const WeightType* weight_type_of_gguf(uint32_t id);
/// "F32, F16, ...", for messages.
std::string weight_type_names();

}  // namespace alibi::formats
