#include "attention/cuda/key_gradients.h"

#include "attention/cuda/launches.h"

int alibi::kernels::cuda::launch_key_gradients(const BackwardArguments& arguments, int64_t tasks, Type type,
                                               void* stream) {
  return start_key_gradients(arguments, tasks, type, stream);
}
