#include "attention/cuda/forward.h"

#include "attention/cuda/launches.h"

int alibi::kernels::cuda::launch_forward(const ForwardArguments& arguments, int64_t tasks, Type type, void* stream) {
  return start_forward(arguments, tasks, type, stream);
}
