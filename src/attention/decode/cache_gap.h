// A cache that stands far into a text without having read it: for measurements.
#pragma once

#include <cstdint>

#include "alibi/kv_cache.h"

namespace alibi::kernels {

/// All keys of a cache count as evicted, and as many more as bring its length to `length`, a multiple of
/// kernels::cache_block; they are taken to be as long as the longest there was.
void leave_gap(KvCache& cache, int64_t length);

}  // namespace alibi::kernels
