// In a module built with ALIBI_PYTHON_EMULATED_GPU, the emulated device of the C++ tests is in the place of CUDA.
#include "attention/cuda/emulated_device.h"

namespace {

[[maybe_unused]] const auto* const device = new alibi::test::EmulatedDevice;  // never destroyed

}  // namespace
