// Elements of tensors on a GPU: filled, and copied between strides and types. For the kernels and those who launch
// them, so without the library's headers.
#pragma once

#include <cstdint>

namespace alibi::core::cuda {

constexpr int most_axes = 8;

/// Strides count elements. Types are DType as a number.
struct Elements {
  void* data = nullptr;
  int type = 0;
  int64_t strides[most_axes] = {};
};
struct Extents {
  int axes = 0;
  int64_t count = 0;  ///< of all elements
  int64_t size[most_axes] = {};
};

/// Queued in the stream; they give the cudaError_t of the launch.
int launch_fill(const Elements& to, float value, const Extents& extents, void* stream);
/// int32 to int32, else between any of the floating-point types.
int launch_copy(const Elements& from, const Elements& to, const Extents& extents, void* stream);

}  // namespace alibi::core::cuda
