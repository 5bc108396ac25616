// The query rows that a block of keys processes in the backward pass.
#pragma once

#include "attention/cuda/gradients.h"

ALIBI_LANES_BEGIN

/// Steps of query rows that visited any of the `key_tiles` blocks of keys from the task's first on, one head after the
/// other.
template <int forward_rows, int step_rows, int key_tiles, Form form = Form::slopes>
struct Steps {
  const BackwardArguments& a;
  int head, last_head, step;
  int base, end;   ///< 32 steps of the head are examined together, from `base` on
  uint32_t found;  ///< the remaining ones among them

  ALIBI_LANE Steps(const BackwardArguments& arguments, const Task& task)
      : a(arguments), step(0), base(0), end(0), found(0) {
    const int group = a.call.heads / a.call.kv_heads;
    head = task.head * group - 1;
    last_head = head + group;
  }

  /// Advances to the next step. Returns false if there is none. The task and its sequence are passed as arguments to
  /// save registers.
  ALIBI_LANE bool advance(const Task& task, const SequenceRows& sequence) {
    while (found == 0) {
      base += 32;
      if (base >= end) {
        if (++head > last_head) return false;
        start_head(task, sequence);
      }
      const int candidate = base + thread_index() % 32;
      found = warp_votes(candidate < end && visits(task, sequence, candidate));
    }
    step = base + lowest_bit(found);
    found &= found - 1;
    return true;
  }

  /// Starts with the head's steps in the tiles that may visit the keys.
  ALIBI_LANE void start_head(const Task& task, const SequenceRows& sequence) {
    constexpr int steps_of_tile = forward_rows / step_rows;
    const VisitingTiles tiles = a.visiting[int64_t{task.sequence} * a.call.heads + head];
    const int of_keys = task.tile * block_keys / forward_rows;
    const int steps = (sequence.queries + step_rows - 1) / step_rows;
    base = (of_keys + tiles.first) * steps_of_tile;
    end = (of_keys + tiles.last + 1) * steps_of_tile;
    base = base < 0 ? 0 : base;
    end = end > steps ? steps : end;
  }

  ALIBI_LANE bool visits(const Task& task, const SequenceRows& sequence, int candidate) const {
    const PlaceOf<form> place(a.call, sequence, head);
    const int first = candidate * step_rows;
    const int last = first + step_rows < sequence.queries ? first + step_rows - 1 : sequence.queries - 1;
    const Keys blocks = visited_blocks(a, sequence, head, first / forward_rows, blocks_of(place.seen(first, last)));
    return blocks.begin < task.tile + key_tiles && task.tile < blocks.end;
  }
};

ALIBI_LANES_END
