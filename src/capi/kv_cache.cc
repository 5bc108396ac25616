// C functions for the key/value cache and decoding.
#include "alibi/kv_cache.h"

#include "alibi/stream.h"
#include "capi/convert.h"

struct alibi_kv_cache {
  alibi::KvCache cache;
  void* stream = nullptr;  ///< stream in which keys are appended
};

using namespace alibi;
using namespace alibi::capi;

namespace {

alibi_status create(const char* operation, int64_t batch, int64_t kv_heads, int64_t head_dim, int32_t dtype,
                    int32_t device, void* stream, alibi_kv_cache** cache) {
  return guarded([&] {
    check_pointer(operation, "cache", cache);
    const Place place = to_place(operation, device, stream);
    const UseStream use(place.stream);
    const DType type = dtype == ALIBI_Q8_0 ? DType::q8_0 : to_dtype(operation, "dtype", dtype);
    *cache = new alibi_kv_cache{KvCache(batch, kv_heads, head_dim, type, place.device), place.stream};
  });
}

}  // namespace

alibi_status alibi_kv_cache_create(int64_t batch, int64_t kv_heads, int64_t head_dim, int32_t dtype,
                                   alibi_kv_cache** cache) {
  return create("alibi_kv_cache_create", batch, kv_heads, head_dim, dtype, ALIBI_DEVICE_CPU, nullptr, cache);
}

alibi_status alibi_kv_cache_create_on(int64_t batch, int64_t kv_heads, int64_t head_dim, int32_t dtype, int32_t device,
                                      void* stream, alibi_kv_cache** cache) {
  return create("alibi_kv_cache_create_on", batch, kv_heads, head_dim, dtype, device, stream, cache);
}

void alibi_kv_cache_destroy(alibi_kv_cache* cache) {
  const KeepErrno keep_errno;
  delete cache;
}

alibi_status alibi_kv_cache_append(alibi_kv_cache* cache, const alibi_tensor* k, const alibi_tensor* v) {
  return guarded([&] {
    constexpr const char* operation = "alibi_kv_cache_append";
    check_pointer(operation, "cache", cache);
    const UseStream use(cache->stream);
    const Device device = cache->cache.device();
    cache->cache.append(to_tensor(operation, "k", k, device), to_tensor(operation, "v", v, device));
  });
}

alibi_status alibi_kv_cache_append_gated(alibi_kv_cache* cache, const alibi_tensor* k, const alibi_tensor* v,
                                         const float* log_decay, size_t log_decay_count) {
  return guarded([&] {
    constexpr const char* operation = "alibi_kv_cache_append_gated";
    check_pointer(operation, "cache", cache);
    check_pointer(operation, "log_decay", log_decay);
    const UseStream use(cache->stream);
    const Device device = cache->cache.device();
    const Tensor keys = to_tensor(operation, "k", k, device), values = to_tensor(operation, "v", v, device);
    const int64_t of_head = keys.size(0) * keys.size(1), count = static_cast<int64_t>(log_decay_count);
    check(of_head > 0 ? count % of_head == 0 : count == 0,
          "[{}] log_decay_count is {}, expected batch * new keys * query heads, a multiple of {}", operation,
          log_decay_count, of_head);
    if (of_head == 0) return;
    cache->cache.append(keys, values,
                        Tensor::view(const_cast<float*>(log_decay), {keys.size(0), keys.size(1), count / of_head},
                                     DType::float32, {}, device));
  });
}

alibi_status alibi_kv_cache_truncate(alibi_kv_cache* cache, int64_t length) {
  return guarded([&] {
    check_pointer("alibi_kv_cache_truncate", "cache", cache);
    const UseStream use(cache->stream);
    cache->cache.truncate(length);
  });
}

int64_t alibi_kv_cache_length(const alibi_kv_cache* cache) { return cache != nullptr ? cache->cache.length() : -1; }

alibi_status alibi_attention_decode(const alibi_tensor* q, const alibi_kv_cache* cache,
                                    const alibi_attention_options* options, const alibi_tensor* out,
                                    alibi_attention_state* state) {
  return guarded([&] {
    constexpr const char* operation = "alibi_attention_decode";
    check_pointer(operation, "cache", cache);
    const auto [device, stream] = to_place(operation, options);
    check(device == cache->cache.device(), "[{}] device is '{}', but the cache is on '{}'; expected the same device",
          operation, name_of(device), name_of(cache->cache.device()));
    const UseStream use(stream);
    const Tensor q_view = to_tensor(operation, "q", q, device);
    Tensor out_view = to_tensor(operation, "out", out, device);
    attention_decode(q_view, cache->cache, to_options(operation, options, q_view), out_view,
                     state != nullptr ? &state->state : nullptr);
    if (state != nullptr) state->stream = stream;
  });
}
