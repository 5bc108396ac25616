// Memory of GPUs for tensors.
#include "core/check.h"
#include "core/cuda/elements.h"
#include "core/cuda/stream.h"
#include "core/device.h"

namespace alibi::core {
namespace {

using namespace cuda;

static_assert(static_cast<int>(DType::float32) == 0 && static_cast<int>(DType::bfloat16) == 1 &&
              static_cast<int>(DType::int32) == 2 &&
              static_cast<int>(DType::float16) == 3);  // elements.cu relies on these values

Elements elements_of(const Tensor& tensor) {
  check(tensor.axes() <= max_axes, "[tensor] the tensor has {} axes on 'cuda', expected at most {}", tensor.axes(),
        max_axes);
  Elements result;
  result.data = tensor.raw();
  result.type = static_cast<int>(tensor.dtype());
  for (int axis = 0; axis < tensor.axes(); ++axis) result.strides[axis] = tensor.stride(axis);
  return result;
}

Extents extents_of(const Tensor& tensor) {
  Extents result;
  result.axes = tensor.axes();
  result.count = tensor.elements();
  for (int axis = 0; axis < tensor.axes(); ++axis) result.size[axis] = tensor.size(axis);
  return result;
}

/// All work is queued in the stream of the calling thread. Calls that read or write the CPU's memory wait for it.
class CudaMemory : public DeviceMemory {
 public:
  std::shared_ptr<void> allocate(size_t bytes, bool zeros) const override {
    std::shared_ptr<void> block = workspace("tensor", bytes);
    if (zeros) clear("tensor", block.get(), bytes);
    return block;
  }
  void copy_from_cpu(void* to, const void* from, size_t bytes) const override {
    copy_to_device("tensor", to, from, bytes);
  }
  void copy_to_cpu(void* to, const void* from, size_t bytes) const override { copy_to_host("tensor", to, from, bytes); }
  void fill(Tensor& tensor, float value) const override {
    if (tensor.elements() == 0) return;
    check_cuda("tensor", launch_fill(elements_of(tensor), value, extents_of(tensor), stream()));
  }
  void copy(const Tensor& from, Tensor& to) const override {
    if (to.elements() == 0) return;
    check_cuda("tensor", launch_copy(elements_of(from), elements_of(to), extents_of(to), stream()));
  }
  void order(void* first, void* second) const override { order_streams("tensor", first, second); }
};

}  // namespace

const DeviceMemory* cuda_memory() {
  static const CudaMemory memory;
  return &memory;
}

}  // namespace alibi::core
