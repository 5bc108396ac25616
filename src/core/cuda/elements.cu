#include "core/cuda/elements.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace alibi::core::cuda {
namespace {

enum Type { float32, bfloat16, int32, float16 };  // the values of DType

/// Memory offset of element `index`, counted in row-major order.
__device__ int64_t offset(const Elements& elements, const Extents& extents, int64_t index) {
  int64_t at = 0;
#pragma unroll
  for (int axis = max_axes - 1; axis >= 0;
       --axis) {  // a fixed bound lets the compiler unroll the loop and keep the arguments in place
    if (axis >= extents.axes) continue;
    at += index % extents.size[axis] * elements.strides[axis];
    index /= extents.size[axis];
  }
  return at;
}

__device__ float load(const Elements& from, int64_t at) {
  switch (from.type) {
    case bfloat16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(from.data)[at]);
    case float16:
      return __half2float(static_cast<const __half*>(from.data)[at]);
    default:
      return static_cast<const float*>(from.data)[at];
  }
}

__device__ void store(const Elements& to, int64_t at, float value) {
  switch (to.type) {
    case bfloat16:
      static_cast<__nv_bfloat16*>(to.data)[at] = __float2bfloat16_rn(value);
      break;
    case float16:
      static_cast<__half*>(to.data)[at] = __float2half_rn(value);
      break;
    case int32:
      static_cast<int32_t*>(to.data)[at] = static_cast<int32_t>(value);
      break;
    default:
      static_cast<float*>(to.data)[at] = value;
  }
}

/// Calls body(index) for all elements. The threads stride through the elements, so their number may be smaller.
template <class Body>
__device__ void for_each_element(const Extents& extents, const Body& body) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < extents.count; i += step) body(i);
}

__global__ void fill(Elements to, float value, Extents extents) {
  for_each_element(extents, [&](int64_t i) { store(to, offset(to, extents, i), value); });
}

__global__ void copy(Elements from, Elements to, Extents extents) {
  for_each_element(extents, [&](int64_t i) {
    const int64_t source = offset(from, extents, i), target = offset(to, extents, i);
    if (from.type == int32) {
      static_cast<int32_t*>(to.data)[target] = static_cast<const int32_t*>(from.data)[source];
    } else {
      store(to, target, load(from, source));
    }
  });
}

constexpr int threads = 256;

unsigned blocks(const Extents& extents) {
  constexpr int64_t most = 4096;
  const int64_t needed = (extents.count + threads - 1) / threads;
  return static_cast<unsigned>(needed < most ? needed : most);
}

}  // namespace

// cudaLaunchKernel() returns the error of this launch. cudaGetLastError() would also return an earlier error of another
// library.
int launch_fill(const Elements& to, float value, const Extents& extents, void* stream) {
  const void* arguments[] = {&to, &value, &extents};
  return cudaLaunchKernel(fill, blocks(extents), threads, const_cast<void**>(arguments), 0,
                          static_cast<cudaStream_t>(stream));
}

int launch_copy(const Elements& from, const Elements& to, const Extents& extents, void* stream) {
  const void* arguments[] = {&from, &to, &extents};
  return cudaLaunchKernel(copy, blocks(extents), threads, const_cast<void**>(arguments), 0,
                          static_cast<cudaStream_t>(stream));
}

}  // namespace alibi::core::cuda
