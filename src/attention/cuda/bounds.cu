#include "attention/cuda/bounds.h"

#include "attention/cuda/launches.h"

namespace alibi::kernels::cuda {

int launch_centres(const BoundsArguments& arguments, int64_t kv_heads, Type type, void* stream) {
  return start_centres(arguments, kv_heads, type, stream);
}
int launch_measure(const BoundsArguments& arguments, int64_t tasks, Type type, void* stream) {
  return start_measure(arguments, tasks, type, stream);
}
int launch_accumulate(const BoundsArguments& arguments, int64_t heads, Type type, void* stream) {
  return start_accumulate(arguments, heads, type, stream);
}

}  // namespace alibi::kernels::cuda
