// Stubs for a build without CUDA.
#include "core/device.h"

const alibi::core::DeviceMemory* alibi::core::cuda_memory() { return nullptr; }
