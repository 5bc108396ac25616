// Writing new keys and values into a cache that the caller owns, in pages or in one piece.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "alibi/attention.h"
#include "attention/problem.h"
#include "core/check.h"
#include "core/parallel.h"

namespace alibi {
namespace {

constexpr const char* operation = "append_keys";

/// Throws Error unless the tensor is [?, ?, kv_heads, head_dim] of the data type of k, in the CPU's memory.
void check_rows(const char* name, const Tensor& tensor, const Tensor& k) {
  check_usage(tensor.defined() && tensor.axes() == 4,
              "[{}] {} has shape {}, expected [batch, length, kv_heads, head_dim]", operation, name, tensor.shape());
  check_usage(tensor.dtype() == k.dtype(), "[{}] {} is {}, expected {} like k", operation, name,
              name_of(tensor.dtype()), name_of(k.dtype()));
  check_usage(tensor.device() == Device::cpu, "[{}] {} is on '{}', expected 'cpu'", operation, name,
              name_of(tensor.device()));
  check_usage(tensor.size(2) == k.size(2) && tensor.size(3) == k.size(3),
              "[{}] {} has shape {}, expected [.., {}, {}] like k", operation, name, tensor.shape(), k.size(2),
              k.size(3));
  check_usage(tensor.size(3) <= 1 || tensor.stride(3) == 1, "[{}] {} has strides {}, expected a unit inner stride",
              operation, name, tensor.strides());
}

/// Rows [first, last) of a page, or of an entry of a cache without pages, to which a batch entry writes.
struct PageRows {
  int64_t page, first, last, entry;
  auto operator<=>(const PageRows&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0
};

/// Throws Error if two batch entries write into one page, or if new keys or values are read from rows that are written.
void check_rows_apart(std::vector<PageRows> written, const Tensor& k, const Tensor& v, const Tensor& k_cache,
                      const Tensor& v_cache) {
  std::sort(written.begin(), written.end());
  for (size_t i = 1; i < written.size(); ++i) {
    const int64_t one = std::min(written[i - 1].entry, written[i].entry),
                  other = std::max(written[i - 1].entry, written[i].entry);
    check_usage(
        written[i].page != written[i - 1].page,
        "[{}] block_table gives the new keys of batch entries {} and {} the same page, {}; expected separate pages",
        operation, one, other, written[i].page);
  }
  for (const auto& [cache_name, cache] : {std::pair{"k_cache", &k_cache}, {"v_cache", &v_cache}}) {
    kernels::check_writable(operation, cache_name, *cache);
    for (const auto& [name, tensor] : {std::pair{"k", &k}, {"v", &v}}) {
      if (!kernels::share_memory(*cache, *tensor)) continue;
      for (const PageRows& rows : written) {
        const Tensor page = cache->slice(0, rows.page, rows.page + 1);
        kernels::check_apart(operation, cache_name, page.slice(1, rows.first, rows.last), name, *tensor);
      }
    }
  }
  if (!written.empty()) kernels::check_apart(operation, "v_cache", v_cache, "k_cache", k_cache);
}

}  // namespace

void append_keys(const Tensor& k, const Tensor& v, const std::vector<int32_t>& cache_seqlens,
                 const std::optional<Tensor>& block_table, Tensor& k_cache, Tensor& v_cache) {
  check_rows("k", k, k);
  for (const auto& [name, tensor] :
       {std::pair<const char*, const Tensor*>{"v", &v}, {"k_cache", &k_cache}, {"v_cache", &v_cache}}) {
    check_rows(name, *tensor, k);
  }
  check_usage(v.shape() == k.shape(), "[{}] v has shape {}, expected {} like k", operation, v.shape(), k.shape());
  check_usage(v_cache.shape() == k_cache.shape(), "[{}] v_cache has shape {}, expected {} like k_cache", operation,
              v_cache.shape(), k_cache.shape());
  const int64_t batch = k.size(0), added = k.size(1), heads = k.size(2), page_rows = k_cache.size(1);
  check_usage(std::ssize(cache_seqlens) == batch, "[{}] cache_seqlens has {} values, expected {}, the batch of k",
              operation, cache_seqlens.size(), batch);
  if (block_table) {
    kernels::checked_block_table(operation, *block_table);
    check_usage(block_table->size(0) == batch && page_rows > 0,
                "[{}] block_table has shape {} and k_cache {}, expected a row of pages for each of {} batch entries",
                operation, block_table->shape(), k_cache.shape(), batch);
  } else {
    check_usage(k_cache.size(0) == batch, "[{}] k_cache has batch {}, expected {}, the batch of k", operation,
                k_cache.size(0), batch);
  }
  const int64_t pages = block_table ? block_table->size(1) : 1;
  const auto pages_of = [&](int64_t b) { return block_table->data<int32_t>() + b * pages; };
  std::vector<PageRows> written;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t begin = cache_seqlens[static_cast<size_t>(b)], end = begin + added;
    check_usage(begin >= 0, "[{}] cache_seqlens[{}] is {}, expected >= 0", operation, b, begin);
    if (block_table) {
      kernels::check_pages(operation, pages_of(b), pages, end, page_rows, k_cache.size(0), b);
    } else {
      check_usage(end <= page_rows, "[{}] k_cache has {} rows, expected at least {} for batch entry {}", operation,
                  page_rows, end, b);
    }
    for (int64_t row = begin; row < end;) {
      const int64_t in_page = block_table ? row % page_rows : row, last = std::min(page_rows, in_page + end - row);
      written.push_back({block_table ? pages_of(b)[row / page_rows] : b, in_page, last, b});
      row += last - in_page;
    }
  }
  check_rows_apart(std::move(written), k, v, k_cache, v_cache);
  const auto row_bytes = static_cast<size_t>(k.size(3)) * size_of(k.dtype());
  const auto at = [&](const Tensor& tensor, int64_t first, int64_t row, int64_t head) {
    const int64_t offset = first * tensor.stride(0) + row * tensor.stride(1) + head * tensor.stride(2);
    return static_cast<char*>(tensor.raw()) + offset * static_cast<int64_t>(size_of(k.dtype()));
  };
  constexpr int64_t grain = 64;
  core::parallel_ranges(batch * added, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t b = i / added, row = cache_seqlens[static_cast<size_t>(b)] + i % added;
      const int64_t page = block_table ? pages_of(b)[row / page_rows] : b,
                    in_page = block_table ? row % page_rows : row;
      for (int64_t head = 0; head < heads; ++head) {
        std::memcpy(at(k_cache, page, in_page, head), at(k, b, i % added, head), row_bytes);
        std::memcpy(at(v_cache, page, in_page, head), at(v, b, i % added, head), row_bytes);
      }
    }
  });
}

}  // namespace alibi
