// The cache and decoding, for C.
#include "alibi/kv_cache.h"

#include "capi/convert.h"

struct alibi_kv_cache {
  alibi::KvCache cache;
};

using namespace alibi;
using namespace alibi::capi;

alibi_status alibi_kv_cache_create(int64_t batch, int64_t kv_heads, int64_t head_dim, int32_t dtype,
                                   alibi_kv_cache** cache) {
  return guarded([&] {
    constexpr const char* operation = "alibi_kv_cache_create";
    check_pointer(operation, "cache", cache);
    *cache = new alibi_kv_cache{KvCache(batch, kv_heads, head_dim, to_dtype(operation, "dtype", dtype))};
  });
}

void alibi_kv_cache_destroy(alibi_kv_cache* cache) { delete cache; }

alibi_status alibi_kv_cache_append(alibi_kv_cache* cache, const alibi_tensor* k, const alibi_tensor* v) {
  return guarded([&] {
    constexpr const char* operation = "alibi_kv_cache_append";
    check_pointer(operation, "cache", cache);
    cache->cache.append(to_tensor(operation, "k", k), to_tensor(operation, "v", v));
  });
}

alibi_status alibi_kv_cache_truncate(alibi_kv_cache* cache, int64_t length) {
  return guarded([&] {
    check_pointer("alibi_kv_cache_truncate", "cache", cache);
    cache->cache.truncate(length);
  });
}

int64_t alibi_kv_cache_length(const alibi_kv_cache* cache) { return cache != nullptr ? cache->cache.length() : -1; }

alibi_status alibi_attention_decode(const alibi_tensor* q, const alibi_kv_cache* cache,
                                    const alibi_attention_options* options, const alibi_tensor* out,
                                    alibi_attention_state* state) {
  return guarded([&] {
    constexpr const char* operation = "alibi_attention_decode";
    const Device device = to_place(operation, options).device;
    check(device == Device::cpu, "[{}] options.device is ALIBI_DEVICE_CUDA, but caches lie in the CPU's memory",
          operation);
    const Tensor q_view = to_tensor(operation, "q", q);
    check_pointer(operation, "cache", cache);
    Tensor out_view = to_tensor(operation, "out", out);
    attention_decode(q_view, cache->cache, to_options(operation, options, q_view), out_view,
                     state != nullptr ? &state->state : nullptr);
    if (state != nullptr) state->stream = nullptr;
  });
}
