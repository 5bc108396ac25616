#include "attention/vector/blocks.h"

#include <algorithm>

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
  block.seen = Problem::keys_seen(block.bias, block.position, last_position, sequence.keys);
  block.key_blocks = blocks_of(block.seen, key_rows);
  return block;
}

std::vector<QueryTask> query_tasks(const Problem& problem) {
  std::vector<QueryTask> tasks;
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    const Sequence& sequence = problem.sequences[s];
    for (int64_t kv_head = 0; kv_head < problem.kv_heads; ++kv_head) {
      for_each_task(problem, kv_head, {0, sequence.queries}, [&](const Range& heads, const Range& rows) {
        QueryTask& task = tasks.emplace_back();
        task = {.sequence = s, .heads = heads, .rows = rows};
        const int64_t first_rows = std::min(query_rows, rows.size());
        int64_t keys = 0;
        for (int64_t head = heads.begin; head < heads.end; ++head) {
          keys += likely_keys(problem, sequence, head, rows.begin, first_rows);
        }
        task.work = keys * rows.size();
      });
    }
  }
  most_work_first(tasks, &QueryTask::work);
  return tasks;
}

}  // namespace alibi::kernels
