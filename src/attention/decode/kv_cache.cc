#include "alibi/kv_cache.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "attention/decode/kv_cache_state.h"
#include "attention/skip_centre.h"
#include "attention/workspace.h"
#include "core/check.h"
#include "core/parallel.h"

namespace alibi {
namespace {

using kernels::cache_block;

constexpr int64_t most_keys = (int64_t{1} << 31) - 1;  // as attention() takes

float widen(float x) { return x; }
float widen(bfloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

template <class To, class From>
void copy_row(const From* from, int64_t size, To* to, int64_t stride) {
  if constexpr (std::is_same_v<From, To>) {
    std::memcpy(to, from, static_cast<size_t>(size) * sizeof(To));
  } else {
    for (int64_t i = 0; i < size; ++i) to[i] = To(widen(from[i]));
  }
  for (int64_t i = size; i < stride; ++i) to[i] = To(0.0f);
}

/// An upper bound of the row's distance from a centre, above it by a rounding at most; +infinity if an element is not
/// finite. Without a centre: of its norm.
template <bool centred, class T>
float norm_above(const T* row, int64_t stride, const float* centre) {
  constexpr int64_t lanes = 8;  // sums that do not wait for each other; stride is a multiple
  double sums[lanes] = {};
  for (int64_t i = 0; i < stride; i += lanes) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      auto x = static_cast<double>(widen(row[i + lane]));
      if constexpr (centred) x -= static_cast<double>(centre[i + lane]);
      sums[lane] += x * x;
    }
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  constexpr double above = 1 + 0x1p-23;  // the float nearest to the product is not below the square root
  const auto norm = static_cast<float>(std::sqrt(sum) * above);
  return std::isnan(norm) ? std::numeric_limits<float>::infinity() : norm;
}

void check_rows(const char* name, const Tensor& tensor, const KvCache::State& cache) {
  check(tensor.defined() && tensor.axes() == 4,
        "[kv_cache] {} has shape {}, expected [batch, length, kv_heads, head_dim]", name, tensor.shape());
  check(tensor.dtype() == DType::float32 || tensor.dtype() == DType::bfloat16,
        "[kv_cache] {} is {}, expected float32 or bfloat16", name, name_of(tensor.dtype()));
  const Shape expected = {cache.batch, tensor.size(1), cache.kv_heads, cache.head_dim};
  check(tensor.shape() == expected, "[kv_cache] {} has shape {}, expected {}", name, tensor.shape(), expected);
  check(tensor.size(3) <= 1 || tensor.stride(3) == 1, "[kv_cache] {} has strides {}, expected a unit inner stride",
        name, tensor.strides());
  check(tensor.device() == Device::cpu, "[kv_cache] {} does not lie in the CPU's memory", name);
}

/// The element [b, row, head, 0].
template <class T>
const T* row_of(const Tensor& tensor, int64_t b, int64_t row, int64_t head) {
  return static_cast<const T*>(tensor.raw()) + b * tensor.stride(0) + row * tensor.stride(1) + head * tensor.stride(2);
}

/// Rows [begin, end) of a head of the cache; `first` is the cache row that from's row 0 becomes.
template <class To>
void write_rows(KvCache::State& cache, const Tensor& from, const Tensor& to, int64_t head, int64_t first, int64_t begin,
                int64_t end) {
  const int64_t b = head / cache.kv_heads, h = head % cache.kv_heads;
  To* row = to.data<To>() + (head * cache.capacity + begin) * cache.stride;
  for (int64_t i = begin; i < end; ++i, row += cache.stride) {
    if (from.dtype() == DType::float32) {
      copy_row(row_of<float>(from, b, i - first, h), cache.head_dim, row, cache.stride);
    } else {
      copy_row(row_of<bfloat16>(from, b, i - first, h), cache.head_dim, row, cache.stride);
    }
  }
}

/// Raises the leaves of the block of keys [begin, end), which it holds.
template <class T>
void raise_norms(KvCache::State& cache, int64_t head, int64_t begin, int64_t end) {
  float& longest = cache.norms.leaf(head, begin / cache_block);
  float& farthest = cache.radii.leaf(head, begin / cache_block);
  const float* centre = cache.centre(head);
  for (int64_t i = begin; i < end; ++i) {
    const T* row = cache.k.data<T>() + (head * cache.capacity + i) * cache.stride;
    longest = std::max(longest, norm_above<false>(row, cache.stride, centre));
    farthest = std::max(farthest, norm_above<true>(row, cache.stride, centre));
  }
}

void raise_norms(KvCache::State& cache, int64_t head, int64_t begin, int64_t end) {
  cache.dtype == DType::float32 ? raise_norms<float>(cache, head, begin, end)
                                : raise_norms<bfloat16>(cache, head, begin, end);
}

/// Makes the leaf of a block anew, of its keys before `end`.
void set_norms(KvCache::State& cache, int64_t head, int64_t block, int64_t end) {
  cache.norms.leaf(head, block) = 0;
  cache.radii.leaf(head, block) = 0;
  raise_norms(cache, head, block * cache_block, end);
}

void rebuild(KvCache::State& cache, int64_t head, int64_t block) {
  cache.norms.rebuild(head, block);
  cache.radii.rebuild(head, block);
}

/// The centre of the first keys, once there are enough.
void set_centre(KvCache::State& cache, int64_t head) {
  std::vector<float> rows(static_cast<size_t>(kernels::centre_rows * cache.stride));
  for (int64_t i = 0; i < kernels::centre_rows * cache.stride; ++i) {
    const int64_t at = head * cache.capacity * cache.stride + i;
    rows[static_cast<size_t>(i)] =
        cache.dtype == DType::float32 ? cache.k.data<float>()[at] : widen(cache.k.data<bfloat16>()[at]);
  }
  kernels::make_centre(rows.data(), kernels::centre_rows, cache.stride,
                       &cache.centres[static_cast<size_t>(head * cache.stride)]);
}

template <class T>
void write_block(KvCache::State& cache, const Tensor& k, const Tensor& v, int64_t head, int64_t first, int64_t begin,
                 int64_t end) {
  write_rows<T>(cache, k, cache.k, head, first, begin, end);
  write_rows<T>(cache, v, cache.v, head, first, begin, end);
}

void set_capacity(KvCache::State& cache, int64_t capacity) {
  const Shape shape = {cache.batch, cache.kv_heads, capacity, cache.stride};
  Tensor k = Tensor::empty(shape, cache.dtype);
  Tensor v = Tensor::empty(shape, cache.dtype);
  const size_t row_bytes = static_cast<size_t>(cache.stride) * size_of(cache.dtype);
  const size_t used = static_cast<size_t>(cache.length) * row_bytes;
  if (used > 0) {
    parallel_for(cache.batch * cache.kv_heads, [&](int64_t head) {
      const size_t from = static_cast<size_t>(head * cache.capacity) * row_bytes;
      const size_t to = static_cast<size_t>(head * capacity) * row_bytes;
      std::memcpy(static_cast<char*>(k.raw()) + to, static_cast<const char*>(cache.k.raw()) + from, used);
      std::memcpy(static_cast<char*>(v.raw()) + to, static_cast<const char*>(cache.v.raw()) + from, used);
    });
  }
  cache.k = std::move(k);
  cache.v = std::move(v);
  cache.capacity = capacity;
}

Tensor view_of(const KvCache::State& cache, const Tensor& tensor) {
  return Tensor::view(tensor.raw(), {cache.batch, cache.length, cache.kv_heads, cache.head_dim}, cache.dtype,
                      {cache.kv_heads * cache.capacity * cache.stride, cache.stride, cache.capacity * cache.stride, 1});
}

}  // namespace

KvCache::KvCache(int64_t batch, int64_t kv_heads, int64_t head_dim, DType dtype) {
  constexpr int64_t most = 1 << 30;
  for (const auto& [name, extent] : {std::pair{"batch", batch}, {"kv_heads", kv_heads}, {"head_dim", head_dim}}) {
    check(extent > 0 && extent <= most, "[kv_cache] {} is {}, expected 1 to {}", name, extent, most);
  }
  check(dtype == DType::float32 || dtype == DType::bfloat16, "[kv_cache] dtype is {}, expected float32 or bfloat16",
        name_of(dtype));
  check(batch <= most / kv_heads, "[kv_cache] batch {} times kv_heads {} is more than {}", batch, kv_heads, most);
  state_ = std::make_unique<State>(batch, kv_heads, head_dim, dtype);
  state_->stride = ceil_div(head_dim, State::row_multiple) * State::row_multiple;
  state_->centres.resize(static_cast<size_t>(batch * kv_heads * state_->stride));
  set_capacity(*state_, 0);
}

KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

KvCache KvCache::clone() const {
  KvCache result(batch(), kv_heads(), head_dim(), dtype());
  *result.state_ = *state_;
  set_capacity(*result.state_, capacity());  // copies the rows
  return result;
}

int64_t KvCache::batch() const { return state_->batch; }
int64_t KvCache::kv_heads() const { return state_->kv_heads; }
int64_t KvCache::head_dim() const { return state_->head_dim; }
DType KvCache::dtype() const { return state_->dtype; }
int64_t KvCache::length() const { return state_->length; }
int64_t KvCache::capacity() const { return state_->capacity; }
int64_t KvCache::bytes() const {
  const size_t centres = state_->centres.size() * sizeof(float);
  return static_cast<int64_t>(state_->k.bytes() + state_->v.bytes() + centres) + state_->norms.bytes() +
         state_->radii.bytes();
}

void KvCache::append(const Tensor& k, const Tensor& v) {
  State& cache = *state_;
  check_rows("k", k, cache);
  check_rows("v", v, cache);
  check(v.size(1) == k.size(1), "[kv_cache] v has length {}, k has {}", v.size(1), k.size(1));
  const int64_t added = k.size(1);
  if (added == 0) return;
  const int64_t first = cache.length, length = first + added;
  check(added <= most_keys - first, "[kv_cache] {} keys and {} more, expected at most {}", first, added, most_keys);
  const Tensor held_k = cache.k, held_v = cache.v;  // k and v may be views of them
  if (length > cache.capacity) reserve(std::max(length, std::min(most_keys, cache.capacity + cache.capacity / 2)));
  cache.norms.resize(length);
  cache.radii.resize(length);
  // A task is a stretch of whole blocks of one head, so that no two tasks raise the same leaf.
  constexpr int64_t blocks_together = 16;
  const int64_t first_block = first / cache_block;
  const int64_t tasks = ceil_div(ceil_div(length, cache_block) - first_block, blocks_together);
  const int64_t heads = cache.batch * cache.kv_heads;
  // One token is too little work to wake other threads for.
  const int64_t heads_together = std::max<int64_t>(1, 1024 / std::min(added, blocks_together * cache_block));
  const auto for_each_block = [&](const auto& visit) {
    parallel_for(ceil_div(heads, heads_together) * tasks, [&](int64_t i) {
      const kernels::FlushDenormals flush;  // norms are those of what the kernels read
      const int64_t block = first_block + i % tasks * blocks_together, head = i / tasks * heads_together;
      for (int64_t h = head; h < std::min(head + heads_together, heads); ++h) {
        for (int64_t b = block; b < block + blocks_together && b * cache_block < length; ++b) {
          visit(h, std::max(first, b * cache_block), std::min(length, (b + 1) * cache_block));
        }
      }
    });
  };
  const auto write = [&](int64_t head, int64_t begin, int64_t end) {
    cache.dtype == DType::float32 ? write_block<float>(cache, k, v, head, first, begin, end)
                                  : write_block<bfloat16>(cache, k, v, head, first, begin, end);
  };
  if (first < kernels::centre_rows && length >= kernels::centre_rows) {  // norms from the centre begin with this call
    for_each_block(write);
    parallel_for(heads, [&](int64_t head) {
      const kernels::FlushDenormals flush;
      set_centre(cache, head);
      set_norms(cache, head, 0, std::min(length, cache_block));
    });
    for_each_block([&](int64_t head, int64_t begin, int64_t end) {
      if (begin >= cache_block) raise_norms(cache, head, begin, end);
    });
  } else {
    for_each_block([&](int64_t head, int64_t begin, int64_t end) {
      write(head, begin, end);
      raise_norms(cache, head, begin, end);
    });
  }
  for (int64_t head = 0; head < heads; ++head) rebuild(cache, head, first_block);
  cache.length = length;
}

void KvCache::reserve(int64_t keys) {
  check(keys >= 0 && keys <= most_keys, "[kv_cache] room for {} keys asked for, expected 0 to {}", keys, most_keys);
  const int64_t capacity = ceil_div(keys, cache_block) * cache_block;
  if (capacity > state_->capacity) set_capacity(*state_, capacity);
}

void KvCache::truncate(int64_t length) {
  State& cache = *state_;
  check(length >= 0 && length <= cache.length, "[kv_cache] cut to {} keys, expected 0 to {}, its length", length,
        cache.length);
  cache.length = length;
  cache.norms.resize(length);
  cache.radii.resize(length);
  if (length < kernels::centre_rows) std::fill(cache.centres.begin(), cache.centres.end(), 0.0f);
  if (length == 0) return;
  const kernels::FlushDenormals flush;  // norms are those of what the kernels read
  // The last block's norm counts keys that are gone.
  const int64_t block = (length - 1) / cache_block;
  for (int64_t head = 0; head < cache.batch * cache.kv_heads; ++head) {
    set_norms(cache, head, block, length);
    rebuild(cache, head, block);
  }
}

Tensor KvCache::keys() const { return view_of(*state_, state_->k); }
Tensor KvCache::values() const { return view_of(*state_, state_->v); }

}  // namespace alibi
