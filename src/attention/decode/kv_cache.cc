#include "alibi/kv_cache.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "attention/decode/device_cache.h"
#include "attention/decode/kv_cache_rows.h"
#include "attention/decode/kv_cache_state.h"
#include "attention/decode/q8_rows.h"
#include "attention/skip/norms.h"
#include "attention/workspace.h"
#include "core/check.h"
#include "core/parallel.h"

namespace alibi {
namespace {

using kernels::cache_block;
using kernels::move_rows;
using kernels::set_capacity;

constexpr int64_t max_keys = (int64_t{1} << 31) - 1;  // the limit of attention()

void check_rows(const char* name, const Tensor& tensor, const core::StateOf<KvCache>& cache) {
  check_usage(tensor.defined() && tensor.axes() == 4,
              "[kv_cache] {} has shape {}, expected [batch, length, kv_heads, head_dim]", name, tensor.shape());
  const DType dtype = tensor.dtype();
  check_usage(dtype == DType::float32 || dtype == DType::bfloat16 || dtype == DType::float16,
              "[kv_cache] {} is {}, expected float32, bfloat16 or float16", name, name_of(dtype));
  const Shape expected = {cache.batch, tensor.size(1), cache.kv_heads, cache.head_dim};
  check_usage(tensor.shape() == expected, "[kv_cache] {} has shape {}, expected {}", name, tensor.shape(), expected);
  check_usage(tensor.size(3) <= 1 || tensor.stride(3) == 1,
              "[kv_cache] {} has strides {}, expected a unit inner stride", name, tensor.strides());
  check_usage(tensor.device() == cache.device,
              "[kv_cache] {} is on '{}', but the cache is on '{}'; copy it with to(Device)", name,
              name_of(tensor.device()), name_of(cache.device));
}

void add_gates(core::StateOf<KvCache>& cache, const Tensor& k, const std::optional<Tensor>& log_decay) {
  const int64_t heads = cache.gate_heads();
  check_usage(cache.length == 0 || log_decay.has_value() == (heads > 0),
              "[kv_cache] log_decay is {}, but the {} keys of the cache have {}; expected gates for all keys or none",
              log_decay ? "given" : "not given", cache.length, heads > 0 ? "gates" : "none");
  const auto forget_old_gates = [&] {  // a cache that was emptied may have had gates
    if (cache.length > 0) return;
    cache.decays = {};
    cache.bounds.log_decay = cache.bounds.gates = Tensor();
  };
  if (!log_decay) return forget_old_gates();
  check_usage(log_decay->defined() && log_decay->axes() == 3 && log_decay->dtype() == DType::float32 &&
                  log_decay->size(0) == cache.batch && log_decay->size(1) == k.size(1) &&
                  log_decay->size(2) % cache.kv_heads == 0 && log_decay->size(2) > 0 &&
                  (cache.length == 0 || log_decay->size(2) == heads),
              "[kv_cache] log_decay has shape {}, expected float32 [{}, {}, query heads]", log_decay->shape(),
              cache.batch, k.size(1));
  check_usage(log_decay->device() == cache.device, "[kv_cache] log_decay is on '{}', but the cache is on '{}'",
              name_of(log_decay->device()), name_of(cache.device));
  forget_old_gates();
  cache.device == Device::cpu ? cache.decays.append("kv_cache", *log_decay)
                              : kernels::append_gates_on_device(cache, *log_decay);
}

}  // namespace

void kernels::move_rows(core::StateOf<KvCache>& cache, std::vector<int64_t> begins, int64_t capacity, int64_t shared) {
  core::StateOf<KvCache> to(cache.batch, cache.kv_heads, cache.head_dim, cache.dtype);
  to.capacity = capacity;
  to.begins = std::move(begins);
  to.shared.end = shared;
  const Shape shape = {to.batch, to.rows_of_batch(), to.row_elements()};
  to.k = Tensor::empty(shape, to.dtype);
  to.v = Tensor::empty(shape, to.dtype);
  const auto row_bytes = static_cast<size_t>(to.row_bytes());
  if (cache.length > 0) {
    core::parallel_for(to.batch * to.kv_heads, [&](int64_t head) {
      const int64_t b = head / to.kv_heads, h = head % to.kv_heads, begin = to.own_begin(h);
      const auto copy = [&](int64_t first, int64_t last) {
        if (first >= last) return;  // the tensors may have no memory
        const size_t at = static_cast<size_t>(to.row(b, h, first)) * row_bytes;
        const size_t used = static_cast<size_t>(last - first) * row_bytes;
        std::memcpy(static_cast<char*>(to.k.raw()) + at, cache.key_rows(b, h, first), used);
        std::memcpy(static_cast<char*>(to.v.raw()) + at, cache.value_rows(b, h, first), used);
      };
      const int64_t own = std::max(begin, cache.own_begin(h));
      copy(begin, std::min(own, cache.length));  // copies the shared keys
      copy(own, cache.length);
    });
  }
  cache.k = std::move(to.k);
  cache.v = std::move(to.v);
  cache.begins = std::move(to.begins);
  cache.capacity = capacity;
  if (shared == 0) cache.shared = {};
  cache.shared.end = shared;
  cache.forked = {};
}

void kernels::set_capacity(core::StateOf<KvCache>& cache, int64_t capacity) {
  if (cache.device != Device::cpu) return move_device_cache(cache, capacity);
  move_rows(cache, cache.begins, capacity, cache.shared.end);
}

KvCache::KvCache(int64_t batch, int64_t kv_heads, int64_t head_dim, DType dtype, Device device) {
  constexpr int64_t most = 1 << 30;
  for (const auto& [name, extent] : {std::pair{"batch", batch}, {"kv_heads", kv_heads}, {"head_dim", head_dim}}) {
    check_usage(extent > 0 && extent <= most, "[kv_cache] {} is {}, expected 1 to {}", name, extent, most);
  }
  if (device != Device::cpu) kernels::check_device_cache(head_dim, dtype, device);
  check_usage(device != Device::cpu || dtype != DType::int32,
              "[kv_cache] dtype is {}, expected float32, bfloat16, float16 or q8_0", name_of(dtype));
  check_usage(batch <= most / kv_heads, "[kv_cache] batch {} times kv_heads {} exceeds {}", batch, kv_heads, most);
  state_ = std::make_unique<State>(batch, kv_heads, head_dim, dtype, device);
  set_capacity(*state_, 0);
}

KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

KvCache KvCache::clone() const {
  KvCache result(batch(), kv_heads(), head_dim(), dtype(), device());
  *result.state_ = *state_;
  result.state_->shared.end > 0 ? result.own() : kernels::set_capacity(*result.state_, capacity());  // copies the rows
  return result;
}

KvCache KvCache::fork() const {
  state_->check_on_cpu("fork()");
  const int64_t whole = length() / cache_block * cache_block;
  if (whole == 0 || state_->has_evicted()) return clone();
  KvCache result(batch(), kv_heads(), head_dim(), dtype());
  State& to = *result.state_;
  to = *state_;
  State::Shared shared = to.shared;
  if (shared.end == 0) {
    shared = {to.k, to.v, to.capacity, whole};
    if (state_->forked.key < whole)
      state_->forked.key = whole;  // threads that fork at the same time write the same length
  }
  move_rows(to, to.begins, core::ceil_div(length() + 1, cache_block) * cache_block, shared.end);
  to.shared = std::move(shared);
  return result;
}

void KvCache::own() {
  if (state_->shared.end > 0) move_rows(*state_, state_->begins, capacity(), 0);
}

int64_t KvCache::batch() const { return state_->batch; }
int64_t KvCache::kv_heads() const { return state_->kv_heads; }
int64_t KvCache::head_dim() const { return state_->head_dim; }
DType KvCache::dtype() const { return state_->dtype; }
Device KvCache::device() const { return state_->device; }
int64_t KvCache::length() const { return state_->length; }
int64_t KvCache::capacity() const { return state_->capacity; }
int64_t KvCache::begin(int64_t kv_head) const {
  check_usage(kv_head >= 0 && kv_head < kv_heads(), "[kv_cache] kv_head is {}, expected 0 to {}", kv_head,
              kv_heads() - 1);
  return state_->begin(kv_head);
}
int64_t KvCache::bytes() const {
  const size_t centres = state_->centres.size() * sizeof(float);
  int64_t sum = static_cast<int64_t>(state_->k.bytes() + state_->v.bytes() + centres) + state_->norms.bytes() +
                state_->radii.bytes() + state_->errors.bytes() + shared_bytes();
  sum += state_->decays.bytes();
  for (const kernels::EvictedKeys& evicted : state_->evicted) sum += evicted.bytes();
  sum += static_cast<int64_t>(state_->evicted_weights.capacity() * sizeof(kernels::EvictedWeights));
  const kernels::CachedBounds& bounds = state_->bounds;
  for (const Tensor& level : bounds.levels) sum += static_cast<int64_t>(level.bytes());
  for (const Tensor* of_gates : {&bounds.log_decay, &bounds.gates}) {
    if (of_gates->defined()) sum += static_cast<int64_t>(of_gates->bytes());
  }
  if (device() != Device::cpu) sum += static_cast<int64_t>(state_->bounds.centres.bytes());
  return sum;
}

int64_t KvCache::shared_bytes() const {
  const State::Shared& shared = state_->shared;
  return shared.end > 0 ? static_cast<int64_t>(shared.k.bytes() + shared.v.bytes()) : 0;
}

void KvCache::append(const Tensor& k, const Tensor& v, const std::optional<Tensor>& log_decay) {
  State& cache = *state_;
  check_rows("k", k, cache);
  check_rows("v", v, cache);
  check_usage(v.size(1) == k.size(1), "[kv_cache] v has length {}, expected {}, the length of k", v.size(1), k.size(1));
  const int64_t added = k.size(1);
  if (added == 0) return;
  const int64_t first = cache.length, length = first + added;
  check_usage(added <= max_keys - first,
              "[kv_cache] the cache has {} keys and {} more were given, expected at most {} in total", first, added,
              max_keys);
  const Tensor held_k = cache.k, held_v = cache.v;  // keeps the old memory alive, because k and v may be views of it
  if (length > cache.capacity) {
    const int64_t more = (cache.capacity - cache.shared.end) / 2;
    reserve(std::max(length, std::min(max_keys, cache.capacity + more)));
  } else if (first < cache.forked.key) {
    set_capacity(cache, cache.capacity);  // forks share the rows that would be overwritten
  }
  add_gates(cache, k, log_decay);
  if (cache.device != Device::cpu) return kernels::append_on_device(cache, k, v);
  cache.resize_trees(length);
  // A task has whole blocks of one head, so that no two tasks update the same leaf.
  constexpr int64_t blocks_together = 16;
  const int64_t first_block = first / cache_block;
  const int64_t tasks = core::ceil_div(core::ceil_div(length, cache_block) - first_block, blocks_together);
  const int64_t heads = cache.batch * cache.kv_heads;
  // One token is too little work for more than one thread.
  const int64_t heads_together = std::max<int64_t>(1, 1024 / std::min(added, blocks_together * cache_block));
  const auto for_each_block = [&](const auto& visit) {
    core::parallel_for(core::ceil_div(heads, heads_together) * tasks, [&](int64_t i) {
      const kernels::FlushDenormals flush;  // computes norms with the kernels' rounding
      const int64_t block = first_block + i % tasks * blocks_together, head = i / tasks * heads_together;
      for (int64_t h = head; h < std::min(head + heads_together, heads); ++h) {
        for (int64_t b = block; b < block + blocks_together && b * cache_block < length; ++b) {
          visit(h, std::max(first, b * cache_block), std::min(length, (b + 1) * cache_block));
        }
      }
    });
  };
  const auto write = [&](int64_t head, int64_t begin, int64_t end) {
    kernels::write_rows(cache, k, v, head, first, begin, end);
  };
  if (first < kernels::centre_rows && length >= kernels::centre_rows) {  // from this call on the centre exists
    for_each_block(write);
    core::parallel_for(heads, [&](int64_t head) {
      const kernels::FlushDenormals flush;
      kernels::set_centre(cache, head);
      kernels::set_norms(cache, head, 0, std::min(length, cache_block));
    });
    for_each_block([&](int64_t head, int64_t begin, int64_t end) {
      if (begin >= cache_block) kernels::raise_norms(cache, head, begin, end);
    });
  } else {
    for_each_block([&](int64_t head, int64_t begin, int64_t end) {
      write(head, begin, end);
      kernels::raise_norms(cache, head, begin, end);
    });
  }
  for (int64_t head = 0; head < heads; ++head) kernels::rebuild(cache, head, first_block);
  cache.length = length;
}

void KvCache::reserve(int64_t keys) {
  check_usage(keys >= 0 && keys <= max_keys, "[kv_cache] reserve({}), expected 0 to {} keys", keys, max_keys);
  const int64_t capacity = core::ceil_div(keys, cache_block) * cache_block;
  if (capacity > state_->capacity) set_capacity(*state_, capacity);
}

void KvCache::truncate(int64_t length) {
  State& cache = *state_;
  check_usage(length >= 0 && length <= cache.length, "[kv_cache] truncate({}), expected 0 to the length, {}", length,
              cache.length);
  const int64_t least = *std::max_element(cache.begins.begin(), cache.begins.end());
  check_usage(length >= least, "[kv_cache] truncate({}), but a head has evicted the keys before {}", length, least);
  if (cache.device != Device::cpu) return kernels::truncate_on_device(cache, length);
  const int64_t whole = length / cache_block * cache_block;
  cache.length = length;
  cache.decays.truncate(length);
  if (whole < cache.shared.end) {
    move_rows(cache, cache.begins, core::ceil_div(length + 1, cache_block) * cache_block, whole);
  }
  cache.resize_trees(length);
  if (length < kernels::centre_rows) std::fill(cache.centres.begin(), cache.centres.end(), 0.0f);
  if (length == 0) return;
  const kernels::FlushDenormals flush;  // computes norms with the kernels' rounding
  // The norm of the last block still includes keys that were truncated.
  const int64_t block = (length - 1) / cache_block;
  for (int64_t head = 0; head < cache.batch * cache.kv_heads; ++head) {
    if (cache.begin(head % cache.kv_heads) == length) continue;  // the head holds no keys
    kernels::set_norms(cache, head, block, length);
    kernels::rebuild(cache, head, block);
  }
}

void KvCache::evict(std::span<const int64_t> begins, int64_t room) {
  State& cache = *state_;
  cache.check_on_cpu("evict()");
  check_usage(static_cast<int64_t>(begins.size()) == cache.kv_heads,
              "[kv_cache] evict() was called with {} first keys, expected one for each of {} heads", begins.size(),
              cache.kv_heads);
  check_usage(room >= 0 && room <= max_keys - cache.length,
              "[kv_cache] evict() would leave {} keys after {}, expected 0 to {}", room, cache.length, max_keys);
  std::vector<int64_t> kept = cache.begins;
  for (size_t h = 0; h < kept.size(); ++h) {
    check_usage(begins[h] >= 0 && begins[h] <= cache.length,
                "[kv_cache] evict() has first key {1} for head {0}, expected 0 to the length, {2}", h, begins[h],
                cache.length);
    kept[h] = std::max(kept[h], begins[h] / cache_block * cache_block);
  }
  const int64_t query_heads = cache.decays.heads();
  if (query_heads > 0) cache.evicted_weights.resize(static_cast<size_t>(cache.batch * query_heads));
  const std::vector<int64_t> before = cache.begins;
  const int64_t capacity = core::ceil_div(cache.length + room, cache_block) * cache_block;
  if (kept != before || capacity != cache.capacity) move_rows(cache, kept, capacity, 0);
  for (int64_t head = 0; head < cache.batch * cache.kv_heads; ++head) {
    const auto h = static_cast<size_t>(head % cache.kv_heads);
    for (int64_t block = before[h] / cache_block; block < kept[h] / cache_block; ++block) {
      const kernels::KeyBounds bounds = kernels::bounds_of_block(cache, head, block);
      const kernels::Range keys = {block * cache_block, (block + 1) * cache_block};
      if (query_heads == 0) cache.evicted[static_cast<size_t>(head)].add({keys.begin, keys.end, bounds.norm});
      const int64_t group = query_heads / cache.kv_heads;
      for (int64_t i = head * group; i < (head + 1) * group; ++i) {
        cache.evicted_weights[static_cast<size_t>(i)].add(cache.decays.head(i / query_heads, i % query_heads), keys,
                                                          bounds.norm, bounds.radius);
      }
    }
    cache.norms.evict(head, kept[h] / cache_block);
    cache.radii.evict(head, kept[h] / cache_block);
    cache.errors.evict(head, kept[h] / cache_block);
  }
  cache.decays.evict(*std::min_element(kept.begin(), kept.end()) - 1);  // the last evicted key's gates are counted from
}

namespace {

/// The rows of all heads as [batch, length, kv_heads, head_dim].
Tensor view_of(const core::StateOf<KvCache>& cache, const Tensor& tensor) {
  check_usage(!cache.has_evicted(), "[kv_cache] the heads have evicted different keys, so they have no common shape");
  check_usage(cache.shared.end == 0, "[kv_cache] {} keys are shared with another cache; copy them with own() first",
              cache.shared.end);
  if (cache.dtype == DType::q8_0) return kernels::widened_rows(cache, tensor);
  const int64_t of_head = cache.capacity * cache.stride;
  return Tensor::view(tensor.raw(), {cache.batch, cache.length, cache.kv_heads, cache.head_dim}, cache.dtype,
                      {cache.kv_heads * of_head, cache.stride, of_head, 1}, cache.device);
}

}  // namespace

Tensor KvCache::keys() const { return view_of(*state_, state_->k); }
Tensor KvCache::values() const { return view_of(*state_, state_->v); }

}  // namespace alibi
