// Fills elements of tensors on a GPU, and copies them between strides and types. Kernels include this header, so it
// includes none of the library's headers.
#pragma once

#include <cstdint>

namespace alibi::core::cuda {

constexpr int max_axes = 8;

/// Strides count elements. The type is a DType as a number.
struct Elements {
  void* data = nullptr;
  int type = 0;
  int64_t strides[max_axes] = {};
};
struct Extents {
  int axes = 0;
  int64_t count = 0;  ///< number of elements
  int64_t size[max_axes] = {};
};

/// The functions below queue work in the stream and return the cudaError_t of the launch.
int launch_fill(const Elements& to, float value, const Extents& extents, void* stream);
/// Copies from int32 to int32, or between any two floating-point types.
int launch_copy(const Elements& from, const Elements& to, const Extents& extents, void* stream);

}  // namespace alibi::core::cuda
