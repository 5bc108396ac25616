#include "attention/cuda/both_gradients.h"

#include "attention/cuda/launches.h"

int alibi::kernels::cuda::launch_both_gradients(const BackwardArguments& arguments, int64_t units, Type type,
                                                void* stream) {
  return start_both_gradients(arguments, units, type, stream);
}
