// A build without CUDA.
#include "core/device.h"

const alibi::DeviceMemory* alibi::cuda_memory() { return nullptr; }
