#include "core/device.h"

#include "core/check.h"

namespace alibi::core {

PerDevice<DeviceMemory>& device_memories() {
  static PerDevice<DeviceMemory> memories(cuda_memory());
  return memories;
}

const DeviceMemory& device_memory(Device device) {
  const DeviceMemory* const memory = device_memories().of(device);
  check(memory != nullptr,
        "[tensor] this build of alibi has no device '{}'; configure it with -DALIBI_CUDA=ON, or use 'cpu'",
        name_of(device));
  return *memory;
}

}  // namespace alibi::core
