#include "attention/decode/cache_gap.h"

#include <vector>

#include "attention/decode/kv_cache_state.h"
#include "core/check.h"

namespace alibi::kernels {

void leave_gap(KvCache& cache_in, int64_t length) {
  auto& cache = const_cast<KvCache::State&>(cache_in.state());  // it is the cache's own, which is not const
  cache.check_on_cpu("leave_gap()");
  check(length % kernels::cache_block == 0, "[kv_cache] a gap up to {}, expected a multiple of {}", length,
        kernels::cache_block);
  if (length <= cache.length) return;
  std::vector<float> longest;
  for (int64_t head = 0; head < cache.batch * cache.kv_heads; ++head) longest.push_back(cache.norms.longest(head));
  cache = KvCache::State(cache.batch, cache.kv_heads, cache.head_dim, cache.dtype);
  cache.begins.assign(cache.begins.size(), length);
  cache.length = length;
  kernels::set_capacity(cache, length);
  cache.norms.resize(length);
  cache.radii.resize(length);
  for (size_t head = 0; head < longest.size(); ++head) {
    cache.evicted[head].add({0, length, longest[head]});
    cache.norms.evict(static_cast<int64_t>(head), length / kernels::cache_block);
    cache.radii.evict(static_cast<int64_t>(head), length / kernels::cache_block);
  }
}

}  // namespace alibi::kernels
