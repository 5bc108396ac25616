#include "attention/decode/device_cache.h"

#include <algorithm>

#include "alibi/stream.h"
#include "attention/decode/kv_cache_norms.h"
#include "attention/decode/kv_cache_state.h"
#include "attention/kernel_state.h"
#include "attention/problem.h"
#include "attention/skip/norms.h"
#include "core/check.h"
#include "core/device.h"

namespace alibi::kernels {
namespace {

const CacheKernel& kernel_of(Device device) {
  const CacheKernel* const kernel = device_cache_kernels().of(device);
  check_usage(kernel != nullptr, "[kv_cache] this build of alibi does not support caches on '{}'; use 'cpu'",
              name_of(device));
  return *kernel;
}

/// The memory of keys or values as [batch, kv_heads, capacity, head_dim].
Tensor rows_of(const core::StateOf<KvCache>& cache, const Tensor& rows) {
  return rows.reshape({cache.batch, cache.kv_heads, cache.capacity, cache.head_dim});
}

/// Keys [begin, end) of that memory as [batch, end - begin, kv_heads, head_dim].
Tensor part_of(const core::StateOf<KvCache>& cache, const Tensor& rows, int64_t begin, int64_t end) {
  const Tensor part = rows_of(cache, rows).slice(2, begin, end);
  return Tensor::view(part.raw(), {cache.batch, end - begin, cache.kv_heads, cache.head_dim}, cache.dtype,
                      {part.stride(0), part.stride(2), part.stride(1), 1}, cache.device);
}

/// Starts a change of the cache in this thread's stream. The stream first waits for the work queued in other streams.
void begin_change(core::StateOf<KvCache>& cache) {
  if (cache.queue != stream()) core::device_memory(cache.device).order(cache.queue, stream());
  cache.queue = stream();
}

void note_keys(core::StateOf<KvCache>& cache, int64_t begin) {
  kernel_of(cache.device).note_keys(part_of(cache, cache.k, 0, cache.length), begin, cache.bounds);
}

/// The bounds with room for the gates of `capacity` keys.
CachedBounds with_gates(CachedBounds bounds, int64_t batch, int64_t heads, int64_t capacity, Device device) {
  bounds.log_decay = Tensor::empty({batch, capacity, heads}, DType::float32, device);
  bounds.gates = Tensor::empty({batch * heads, capacity / cache_block + 1, gate_block_floats}, DType::float32, device);
  return bounds;
}

}  // namespace

void check_device_cache(int64_t head_dim, DType dtype, Device device) {
  core::device_memory(device);  // throws an Error that names the device
  kernel_of(device);
  constexpr int64_t multiple = 8, most = 256;
  check_usage(dtype == DType::bfloat16 || dtype == DType::float16,
              "[kv_cache] dtype is {}, expected bfloat16 or float16 on '{}'", name_of(dtype), name_of(device));
  check_usage(head_dim % multiple == 0 && head_dim <= most,
              "[kv_cache] head_dim is {}, expected a multiple of {} up to {} on '{}'", head_dim, multiple, most,
              name_of(device));
}

void move_device_cache(core::StateOf<KvCache>& cache, int64_t capacity) {
  const int64_t heads = cache.batch * cache.kv_heads;
  begin_change(cache);
  core::StateOf<KvCache> to = cache;
  to.memory_queue = stream();
  to.capacity = capacity;
  for (Tensor core::StateOf<KvCache>::*rows : {&core::StateOf<KvCache>::k, &core::StateOf<KvCache>::v}) {
    to.*rows = Tensor::empty({cache.batch, cache.kv_heads * capacity, cache.head_dim}, cache.dtype, cache.device);
    if (cache.length == 0) continue;
    Tensor held = part_of(to, to.*rows, 0, cache.length);
    held.copy_from(part_of(cache, cache.*rows, 0, cache.length));
  }
  to.bounds.levels.clear();
  int64_t nodes = capacity / cache_block;
  for (size_t level = 0; nodes > 0; ++level) {
    to.bounds.levels.push_back(Tensor::empty({heads, nodes, 2}, DType::float32, cache.device));
    if (level < cache.bounds.levels.size()) {
      const Tensor& from = cache.bounds.levels[level];
      const int64_t held = std::min(nodes, from.size(1));
      to.bounds.levels[level].slice(1, 0, held).copy_from(from.slice(1, 0, held));
    }
    nodes = nodes > 1 ? core::ceil_div(nodes, NormTree::fanout) : 0;
  }
  if (const int64_t gate_heads = cache.gate_heads(); gate_heads > 0) {
    to.bounds = with_gates(to.bounds, cache.batch, gate_heads, capacity, cache.device);
    const int64_t keys = std::min(capacity, cache.length), entries = core::ceil_div(keys, cache_block) + 1;
    to.bounds.log_decay.slice(1, 0, keys).copy_from(cache.bounds.log_decay.slice(1, 0, keys));
    to.bounds.gates.slice(1, 0, entries).copy_from(cache.bounds.gates.slice(1, 0, entries));
  }
  const auto copy_or_zeros = [&](const Tensor& from, Shape shape) {
    return from.defined() ? from.clone() : Tensor(std::move(shape), DType::float32, cache.device);
  };
  to.bounds.centres = copy_or_zeros(cache.bounds.centres, {heads, cache.head_dim});
  to.bounds.centre_norms = copy_or_zeros(cache.bounds.centre_norms, {heads});
  // The old memory is freed in the stream in which it was allocated. That stream must first wait for the copies.
  if (cache.k.defined() && cache.memory_queue != stream()) {
    core::device_memory(cache.device).order(stream(), cache.memory_queue);
  }
  cache = std::move(to);
}

void append_gates_on_device(core::StateOf<KvCache>& cache, const Tensor& log_decay) {
  begin_change(cache);
  const int64_t heads = log_decay.size(2), first = cache.length, length = first + log_decay.size(1);
  CachedBounds& bounds = cache.bounds;
  if (!bounds.log_decay.defined()) bounds = with_gates(bounds, cache.batch, heads, cache.capacity, cache.device);
  bounds.log_decay.slice(1, first, length).copy_from(log_decay);
  kernel_of(cache.device).note_gates(first, length, bounds);
}

void append_on_device(core::StateOf<KvCache>& cache, const Tensor& k, const Tensor& v) {
  begin_change(cache);
  const int64_t first = cache.length, length = first + k.size(1);
  Tensor keys = part_of(cache, cache.k, first, length), values = part_of(cache, cache.v, first, length);
  keys.copy_from(k);
  values.copy_from(v);
  cache.length = length;
  note_keys(cache, first);
}

void truncate_on_device(core::StateOf<KvCache>& cache, int64_t length) {
  if (length == cache.length) return;
  begin_change(cache);
  cache.length = length;
  if (length < centre_rows) {
    cache.bounds.centres.fill(0);
    cache.bounds.centre_norms.fill(0);
  }
  // The leaf of the last block still includes keys that were truncated.
  if (length > 0) note_keys(cache, (length - 1) / cache_block * cache_block);
}

void decode_on_device(const Tensor& q, const KvCache& cache, const AttentionOptions& options, Tensor& out,
                      AttentionState* state) {
  constexpr const char* operation = "attention_decode";
  check_cached_options(operation, options);
  const Tensor keys = cache.keys(), values = cache.values();
  Problem problem = make_problem(operation, q, keys, values, out, options);
  add_gates(operation, core::state_of(cache), problem);
  check_apart(operation, "out", out, "the cache's keys", keys);
  check_apart(operation, "out", out, "the cache's values", values);
  if (state != nullptr) {
    *state = {};
    state->lse = Tensor::empty({problem.batch, problem.heads, problem.queries}, DType::float32, problem.device);
    core::state_of(state->kernel).lse = state->lse;
  }
  if (out.elements() == 0) return;
  check_supported(operation, problem);
  kernel_of(problem.device).decode(problem, core::state_of(cache).bounds, state);
}

}  // namespace alibi::kernels
