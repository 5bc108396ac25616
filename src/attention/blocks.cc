#include "attention/blocks.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "core/check.h"
#include "core/memory.h"
#include "core/parallel.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace alibi::kernels {

QueryBlock query_block_at(const Problem& problem, const Sequence& sequence, int64_t head, int64_t row) {
  QueryBlock block;
  block.head = head;
  block.row = row;
  block.rows = std::min(query_rows, sequence.queries - row);
  block.position = sequence.query_offset + row;
  block.bias = problem.bias(sequence.batch, head);
  const int64_t last_position = block.position + block.rows - 1;
  block.keys = sequence.keys;
  block.outside = block.bias.table == nullptr && (block.position < 0 || last_position >= sequence.keys);
  std::tie(block.key_begin, block.key_end) =
      Problem::keys_seen(block.bias, block.position, last_position, sequence.keys);
  block.first = block.key_begin / key_rows;
  block.last = block.key_begin < block.key_end ? ceil_div(block.key_end, key_rows) : block.first;
  return block;
}

BlockIndex::BlockIndex(const Problem& problem) {
  for (const Sequence& sequence : problem.sequences) {
    base_.push_back(size_);
    blocks_.push_back(ceil_div(sequence.queries, query_rows));
    size_ += problem.heads * blocks_.back();
  }
}

int64_t likely_keys(const Problem& problem, const QueryBlock& block) {
  int64_t keys = block.key_end - block.key_begin;
  const float slope = std::min(block.bias.slope_before, block.bias.slope_after);
  if (problem.tolerance > 0 && slope > 0) {
    constexpr float typical = 30;  // penalty beyond which weights rarely matter
    const auto reach = static_cast<int64_t>(std::min(typical / slope, 1e9f)) + query_rows;
    keys = std::min(keys, problem.causal ? reach : 2 * reach);
  }
  return keys;
}

std::vector<QueryTask> query_tasks(const Problem& problem) {
  constexpr int64_t blocks_together = 4;  // enough to pay for loading a key block
  constexpr int64_t heads_together = 8;
  std::vector<QueryTask> tasks;
  std::vector<int64_t> work;
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    const Sequence& sequence = problem.sequences[s];
    for (int64_t kv_head = 0; kv_head < problem.kv_heads; ++kv_head) {
      const int64_t group_end = (kv_head + 1) * problem.group();
      for (int64_t head = kv_head * problem.group(); head < group_end; head += heads_together) {
        const int64_t head_end = std::min(head + heads_together, group_end);
        const int64_t rows = query_rows * std::max<int64_t>(1, blocks_together / (head_end - head));
        for (int64_t row = 0; row < sequence.queries; row += rows) {
          tasks.push_back({s, head, head_end, row, std::min(row + rows, sequence.queries)});
          int64_t keys = 0;
          for (int64_t h = head; h < head_end; ++h) {
            keys += likely_keys(problem, query_block_at(problem, sequence, h, row));
          }
          work.push_back(keys * (tasks.back().row_end - row));
        }
      }
    }
  }
  std::vector<size_t> order(tasks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return work[a] > work[b]; });
  std::vector<QueryTask> sorted;
  sorted.reserve(tasks.size());
  for (const size_t i : order) sorted.push_back(tasks[i]);
  return sorted;
}

Workspace Workspace::take(size_t floats) {
  thread_local std::shared_ptr<void> kept;
  thread_local size_t size = 0;
  constexpr size_t slack = 4096;  // parts are rounded up to whole cache lines
  if (size < floats + slack) {
    kept.reset();
    size = 0;
    kept = allocate((floats + slack) * sizeof(float), true);
    size = floats + slack;
  }
  Workspace workspace;
  workspace.owner_ = kept;
  workspace.next_ = static_cast<float*>(kept.get());
  workspace.left_ = size;
  return workspace;
}

float* Workspace::part(int64_t floats) {
  const auto rounded = static_cast<size_t>(round_up(floats, 16));
  check(rounded <= left_, "[attention] workspace of {} floats left, {} needed", left_, rounded);
  float* result = next_;
  next_ += rounded;
  left_ -= rounded;
  return result;
}

#if defined(__SSE2__)
FlushDenormals::FlushDenormals() : saved_(_mm_getcsr()) {
  constexpr uint32_t flush_to_zero = 0x8000, denormals_are_zero = 0x0040;
  _mm_setcsr(saved_ | flush_to_zero | denormals_are_zero);
}
FlushDenormals::~FlushDenormals() { _mm_setcsr(saved_); }
#else
FlushDenormals::FlushDenormals() = default;
FlushDenormals::~FlushDenormals() = default;
#endif

}  // namespace alibi::kernels
