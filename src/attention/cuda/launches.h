// The kernels as they are compiled for GPUs: see Launches.
#pragma once

#include "attention/cuda/arguments.h"

namespace alibi::kernels::cuda {

int launch_store(const StoreArguments& arguments, void* stream);
int launch_centres(const BoundsArguments& arguments, int64_t kv_heads, Type type, void* stream);
int launch_measure(const BoundsArguments& arguments, int64_t units, Type type, void* stream);
int launch_accumulate(const BoundsArguments& arguments, int64_t heads, Type type, void* stream);
int launch_forward(const ForwardArguments& arguments, int64_t tasks, Type type, void* stream);
int launch_row_terms(const BackwardArguments& arguments, int64_t rows, Type type, void* stream);
int launch_reaches(const BackwardArguments& arguments, int64_t heads, Type type, void* stream);
int launch_query_gradients(const BackwardArguments& arguments, int64_t tasks, Type type, void* stream);
int launch_both_gradients(const BackwardArguments& arguments, int64_t units, Type type, void* stream);
int launch_key_gradients(const BackwardArguments& arguments, int64_t tasks, Type type, void* stream);
int launch_add_slopes(const BackwardArguments& arguments, int64_t slopes, Type type, void* stream);
int launch_cached_centres(const CacheArguments& arguments, int64_t kv_heads, Type type, void* stream);
int launch_measure_cached(const CacheArguments& arguments, int64_t blocks, Type type, void* stream);
int launch_raise_nodes(const CacheArguments& arguments, int64_t kv_heads, Type type, void* stream);
int launch_decode_near(const DecodeArguments& arguments, int64_t tiles, Type type, void* stream);
int launch_decode_splits(const DecodeArguments& arguments, int64_t splits, Type type, void* stream);
int launch_decode_merge(const DecodeArguments& arguments, int64_t rows, Type type, void* stream);

}  // namespace alibi::kernels::cuda
