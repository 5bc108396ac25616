#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <mutex>

#include "core/check.h"
#include "core/cuda/stream.h"
#include "core/memory.h"

namespace alibi::core::cuda {
namespace {

cudaStream_t current() { return static_cast<cudaStream_t>(stream()); }

int attribute(const char* operation, cudaDeviceAttr which, int device) {
  int value = 0;
  check_cuda(operation, cudaDeviceGetAttribute(&value, which, device));
  return value;
}

/// The memory pool of a device, created at its first use and never destroyed, or null if the driver has no pools. It
/// keeps up to 1 GiB of unused memory, so that repeated allocations do not call the driver.
cudaMemPool_t pool_of(const char* operation, int device) {
  static std::mutex mutex;
  static std::array<cudaMemPool_t, 64> pools{};
  check(device >= 0 && static_cast<size_t>(device) < pools.size(), "[{}] the CUDA device is {}, expected fewer than {}",
        operation, device, pools.size());
  if (attribute(operation, cudaDevAttrMemoryPoolsSupported, device) == 0) return nullptr;
  const std::lock_guard lock(mutex);
  cudaMemPool_t& pool = pools[static_cast<size_t>(device)];
  if (pool == nullptr) {
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;  // device memory from cudaMalloc
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device;
    cudaMemPool_t made = nullptr;
    check_cuda(operation, cudaMemPoolCreate(&made, &properties));
    uint64_t kept = uint64_t{1} << 30;
    check_cuda(operation, cudaMemPoolSetAttribute(made, cudaMemPoolAttrReleaseThreshold, &kept));
    pool = made;
  }
  return pool;
}

/// Makes a device current during its lifetime. cudaSetDevice() may create a context, which takes hundreds of megabytes
/// on the device, so it is called only if another device is current.
class UseDevice {
 public:
  explicit UseDevice(int device) {
    changed_ = cudaGetDevice(&before_) == cudaSuccess && before_ != device && cudaSetDevice(device) == cudaSuccess;
  }
  ~UseDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  UseDevice(const UseDevice&) = delete;
  UseDevice& operator=(const UseDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace

void check_cuda(const char* operation, int error) {
  if (error == cudaSuccess) return;
  const auto code = static_cast<cudaError_t>(error);
  cudaGetLastError();  // clears the error, so that the next call does not report it again
  switch (code) {
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      fail("[{}] CUDA finds no GPU on this machine: {}; use 'cpu'", operation, cudaGetErrorString(code));
    case cudaErrorNoKernelImageForDevice:
      fail(
          "[{}] this build has no kernels for this GPU: {}; add its architecture to CMAKE_CUDA_ARCHITECTURES and "
          "rebuild",
          operation, cudaGetErrorString(code));
    default:
      fail("[{}] CUDA: {} ({})", operation, cudaGetErrorString(code), cudaGetErrorName(code));
  }
}

std::shared_ptr<void> workspace(const char* operation, size_t bytes) {
  constexpr size_t alignment = 256;
  constexpr size_t most = size_t{1} << 62;
  check(bytes <= most, "[{}] {} bytes are more than memory can address", operation, bytes);
  const size_t padded = bytes == 0 ? alignment : (bytes + alignment - 1) / alignment * alignment;
  const int device = current_device(operation);
  const cudaStream_t order = current();
  const cudaMemPool_t pool = pool_of(operation, device);
  void* data = nullptr;
  const cudaError_t error =
      pool != nullptr ? cudaMallocFromPoolAsync(&data, padded, pool, order) : cudaMalloc(&data, padded);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail("[{}] out of memory on the GPU: cannot allocate {} bytes", operation, padded);
  }
  check_cuda(operation, error);
  count_bytes(static_cast<int64_t>(padded));
  return {data, [device, order, pooled = pool != nullptr, padded](void* block) {
            count_bytes(-static_cast<int64_t>(padded));
            const UseDevice here(device);
            // At the end of a process CUDA may already have freed its memory.
            if ((pooled ? cudaFreeAsync(block, order) : cudaFree(block)) != cudaSuccess) cudaGetLastError();
          }};
}

int current_device(const char* operation) {
  int device = 0;
  check_cuda(operation, cudaGetDevice(&device));  // the first call that shows that a machine has no GPU
  return device;
}

int device_of(const char* operation, const void* data) {
  cudaPointerAttributes attributes{};
  check_cuda(operation, cudaPointerGetAttributes(&attributes, data));
  return attributes.type == cudaMemoryTypeDevice ? attributes.device : -1;
}

void order_streams(const char* operation, void* first, void* second) {
  cudaEvent_t event = nullptr;
  check_cuda(operation, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  cudaError_t error = cudaEventRecord(event, static_cast<cudaStream_t>(first));
  if (error == cudaSuccess) error = cudaStreamWaitEvent(static_cast<cudaStream_t>(second), event, 0);
  cudaEventDestroy(event);  // CUDA keeps the resources that the wait needs
  check_cuda(operation, error);
}

bool capturing(const char* operation) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(operation, cudaStreamIsCapturing(current(), &status));
  return status != cudaStreamCaptureStatusNone;
}

void wait(const char* operation) {
  check(!capturing(operation), "[{}] this call waits for results, so it cannot be captured into a CUDA graph",
        operation);
  check_cuda(operation, cudaStreamSynchronize(current()));
}

void copy_to_device(const char* operation, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  check(!capturing(operation),
        "[{}] this call copies {} bytes from the CPU's memory, so it cannot be captured into a CUDA graph", operation,
        bytes);
  check_cuda(operation, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, current()));
  // The call above usually stages memory that is not pinned before it returns, but CUDA does not guarantee it.
  wait(operation);
}

void copy_to_host(const char* operation, void* to, const void* from, size_t bytes) {
  check(!capturing(operation), "[{}] this call waits for results, so it cannot be captured into a CUDA graph",
        operation);
  if (bytes > 0) check_cuda(operation, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, current()));
  wait(operation);
}

void clear(const char* operation, void* to, size_t bytes) {
  if (bytes > 0) check_cuda(operation, cudaMemsetAsync(to, 0, bytes, current()));
}

int shared_bytes(const char* operation) {
  return attribute(operation, cudaDevAttrMaxSharedMemoryPerBlockOptin, current_device(operation));
}

}  // namespace alibi::core::cuda
