#include "attention/cuda/cached_keys.h"

#include "attention/cuda/launches.h"

namespace alibi::kernels::cuda {

int launch_cached_centres(const CacheArguments& arguments, int64_t kv_heads, Type type, void* stream) {
  return start_cached_centres(arguments, kv_heads, type, stream);
}
int launch_measure_cached(const CacheArguments& arguments, int64_t blocks, Type type, void* stream) {
  return start_measure_cached(arguments, blocks, type, stream);
}
int launch_raise_nodes(const CacheArguments& arguments, int64_t kv_heads, Type type, void* stream) {
  return start_raise_nodes(arguments, kv_heads, type, stream);
}

}  // namespace alibi::kernels::cuda
