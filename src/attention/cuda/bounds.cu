#include "attention/cuda/bounds.h"

#include "attention/cuda/launches.h"

namespace alibi::kernels::cuda {

int launch_store(const StoreArguments& arguments, void* stream) { return start_store(arguments, stream); }
int launch_centres(const BoundsArguments& arguments, int64_t kv_heads, Type type, void* stream) {
  return start_centres(arguments, kv_heads, type, stream);
}
int launch_measure(const BoundsArguments& arguments, int64_t units, Type type, void* stream) {
  return start_measure(arguments, units, type, stream);
}
int launch_accumulate(const BoundsArguments& arguments, int64_t heads, Type type, void* stream) {
  return start_accumulate(arguments, heads, type, stream);
}

}  // namespace alibi::kernels::cuda
