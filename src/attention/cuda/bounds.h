// Bounds of the weight of keys for the skip rule (skip.h): the tables of attention/skip/weights.h, computed on the
// device in three steps. All values are rounded up.
#pragma once

#include "attention/cuda/order.h"
#include "attention/cuda/skip.h"

ALIBI_LANES_BEGIN

/// Represents the logarithm of 0.
constexpr float nothing = -1e30f;

/// Calls use(i, value) for each value of a row. Unrolled, so that the loads do not wait for each other.
template <Type type, class Use>
ALIBI_LANE void for_values(const uint16_t* row, int count, const Use& use) {
  ALIBI_UNROLLED_BY_8
  for (int chunk = 0; chunk < count / 8; ++chunk) {
    const Chunk values = *reinterpret_cast<const Chunk*>(row + chunk * 8);
    ALIBI_UNROLLED
    for (int e = 0; e < 8; ++e) use(chunk * 8 + e, unpack<type>(values.x[e / 2], e % 2));
  }
}

/// Statistics of a sample of rows, one row for each thread of a block.
template <Type type>
struct RowSample {
  static constexpr int threads = 64;
  static constexpr int max_columns = 256;
  static constexpr uint32_t squares_at = 0, shares_at = 256, parts_at = 512, median_at = 768, rows_at = 784;
  static constexpr uint32_t row_bytes = max_columns * 2 + 16;  ///< rows begin in different banks
  static constexpr int shared_bytes = rows_at + threads * row_bytes;

  static ALIBI_LANE float at(uint32_t array, int i) { return shared_load<float>(array + static_cast<uint32_t>(i) * 4); }
  static ALIBI_LANE void set(uint32_t array, int i, float value) {
    shared_store(array + static_cast<uint32_t>(i) * 4, value);
  }

  static ALIBI_LANE uint32_t row_at(int i) { return rows_at + static_cast<uint32_t>(i) * row_bytes; }

  /// Copies the thread's row to shared memory, and stores its squared norm.
  static ALIBI_LANE void take_row(const uint16_t* row, int size) {
    const uint32_t own = row_at(thread_index());
    const auto at_chunk = [own](int chunk) { return own + static_cast<uint32_t>(chunk) * 16; };
    for (int chunk = 0; chunk < size / 8; ++chunk) copy16(at_chunk(chunk), row + chunk * 8, true);
    copies_commit();
    copies_wait<0>();
    float sum = 0;
    for (int chunk = 0; chunk < size / 8; ++chunk) {
      const auto values = shared_load<Chunk>(at_chunk(chunk));
      ALIBI_UNROLLED
      for (int e = 0; e < 8; ++e) {
        const float value = unpack<type>(values.x[e / 2], e % 2);
        sum = fmaf(value, value, sum);
      }
    }
    set(squares_at, thread_index(), sum <= 3.4e38f ? sum : infinity);
  }

  /// Finds the median of the finite ones among `count` squares. Returns the number of finite ones.
  static ALIBI_LANE int find_median(int count, bool all) {
    const int i = thread_index();
    int finite = 0, rank = 0;
    if (i == 0) shared_store(median_at, 0.0f);
    block_sync();
    const float own = i < count ? at(squares_at, i) : infinity;
    for (int j = 0; j < count; ++j) {
      const float other = at(squares_at, j);
      if (!all && other == infinity) continue;
      ++finite;
      if (other < own || (other == own && j < i)) ++rank;
    }
    if (i < count && (all || own < infinity) && rank == (finite - 1) / 2) shared_store(median_at, own);
    block_sync();
    return finite;
  }

  /// Writes the centre of `count` rows (attention/skip/norms.h) and its norm. The rule holds for any centre.
  static ALIBI_LANE void find_centre(const uint16_t* rows, int64_t stride, int count, int size, float* centre,
                                     float* centre_norm) {
    const int i = thread_index();
    if (i < count) take_row(rows + i * stride, size);
    const int finite = find_median(count, false);
    const float most = shared_load<float>(median_at), number = static_cast<float>(finite);
    // Rows longer than the median are scaled down to it.
    if (i < count) {
      const float own = at(squares_at, i);
      set(shares_at, i, own == infinity ? 0.0f : own > most ? sqrtf(most / own) / number : 1 / number);
    }
    block_sync();
    float total = 0;
    for (int j = 0; j < count; ++j) total += at(squares_at, j) == infinity ? 0.0f : fminf(at(squares_at, j), most);
    float mean[max_columns / threads], squares = 0;
    ALIBI_UNROLLED
    for (int part = 0; part < max_columns / threads; ++part) {
      const int column = part * threads + i;
      mean[part] = 0;
      if (column >= size) continue;
      for (int j = 0; j < count; ++j) {
        const float share = at(shares_at, j);
        const float value = unpack<type>(shared_load<uint16_t>(row_at(j) + static_cast<uint32_t>(column) * 2), 0);
        if (share > 0) mean[part] = fmaf(share, value, mean[part]);
      }
      squares = fmaf(mean[part], mean[part], squares);
    }
    set(parts_at, i, squares);
    block_sync();
    float length = 0;
    for (int j = 0; j < threads; ++j) length += at(parts_at, j);
    // Expected squared norm of the mean of unrelated rows.
    const float chance = (total / number - length) / (number - 1);
    const bool clear = finite >= 2 && length > 2 * chance && length < 1e30f;
    const float left = clear ? 1 - fmaxf(chance, 0) / length : 0.0f;
    ALIBI_UNROLLED
    for (int part = 0; part < max_columns / threads; ++part) {
      const int column = part * threads + i;
      if (column < size) centre[column] = clear ? left * mean[part] : 0.0f;
    }
    if (i == 0) *centre_norm = clear ? left * norm_bound(length, size) * norm_rounding : 0.0f;
  }
};

/// One thread block for each key/value head of each sequence. Computes the centre of its keys from a sample of at most
/// 64, and the typical length of its heads' queries.
template <Type type>
struct Centres {
  using Arguments = BoundsArguments;
  using Of = RowSample<type>;
  static constexpr int threads = Of::threads, blocks_at_once = 8, shared_bytes = Of::shared_bytes;

  /// A sample of rows. It is smaller for a short sequence.
  struct Sample {
    int count, step;
    ALIBI_LANE explicit Sample(int rows) {
      const int least = rows < 8 ? rows : 8;
      count = rows / 32 < least ? least : rows / 32 > threads ? threads : rows / 32;
      step = count > 0 ? rows / count : 1;
    }
  };

  static ALIBI_LANE void run(const Arguments& a) {
    const int i = thread_index(), sequence_index = block_index() / a.call.kv_heads;
    const int kv_head = block_index() % a.call.kv_heads, size = a.call.head_dim;
    const SequenceRows sequence = a.call.sequences[sequence_index];
    const uint16_t* const keys = rows_of(a.call.k, sequence.batch, sequence.key_begin, kv_head);
    const Sample sample(sequence.keys);
    const int64_t entry = int64_t{sequence_index} * a.call.kv_heads + kv_head;
    Of::find_centre(keys, sample.step * a.call.k.row_stride, sample.count, size, a.bounds.centres + entry * size,
                    a.bounds.centre_norms + entry);

    const Sample some(sequence.queries);
    const int group = a.call.heads / a.call.kv_heads;
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const uint16_t* const queries = rows_of(a.call.q, sequence.batch, sequence.query_begin, head);
      block_sync();
      if (i < some.count) Of::take_row(queries + i * some.step * a.call.q.row_stride, size);
      Of::find_median(some.count, true);
      const float typical = fabsf(a.call.scale2) * sqrtf(shared_load<float>(Of::median_at));
      if (i == 0) {
        a.bounds.lengths[int64_t{sequence_index} * a.call.heads + head] = typical < 1e30f ? typical : 0.0f;
      }
    }
  }
};

/// One thread block for each block of keys of a key/value head. Bounds the weight of its keys for each head that reads
/// them.
template <Type type, Form form>
struct Measure {
  using Arguments = BoundsArguments;
  static constexpr int threads = block_keys, blocks_at_once = 8;
  static constexpr uint32_t radii_at = 0, norms_at = 256, parts_at = 512;
  static constexpr int shared_bytes = 768;

  static ALIBI_LANE float at(uint32_t array, int i) { return shared_load<float>(array + static_cast<uint32_t>(i) * 4); }
  static ALIBI_LANE void set(uint32_t array, int i, float value) {
    shared_store(array + static_cast<uint32_t>(i) * 4, value);
  }

  static ALIBI_LANE void run(const Arguments& a) {
    const Task task = key_task(a.call, block_index(), 1);
    const SequenceRows sequence = a.call.sequences[task.sequence];
    if (task.tile >= key_blocks(sequence)) return;
    const int i = thread_index(), size = a.call.head_dim, first = task.tile * block_keys;
    const int count = sequence.keys - first < block_keys ? sequence.keys - first : block_keys;
    const int64_t entry = int64_t{task.sequence} * a.call.kv_heads + task.head;
    const float* const centre = a.bounds.centres + entry * size;
    float norm = 0, radius = 0;
    if (i < count) {
      float squares = 0, distances = 0;
      for_values<type>(rows_of(a.call.k, sequence.batch, sequence.key_begin + first + i, task.head), size,
                       [&](int column, float value) {
                         const float apart = value - centre[column];
                         squares = fmaf(value, value, squares);
                         distances = fmaf(apart, apart, distances);
                       });
      norm = norm_bound(squares, size);
      radius = norm_bound(distances, size);
    }
    set(radii_at, i, radius);
    set(norms_at, i, norm);
    block_sync();
    float largest = 0, longest = 0;
    for (int j = 0; j < count; ++j) {
      largest = fmaxf(largest, at(radii_at, j));
      longest = fmaxf(longest, at(norms_at, j));
    }
    const int group = a.call.heads / a.call.kv_heads;
    for (int head = task.head * group; head < (task.head + 1) * group; ++head) {
      const Slopes slopes = a.call.slopes[sequence.batch * a.call.slopes_stride + head];
      const float length = a.bounds.lengths[int64_t{task.sequence} * a.call.heads + head];
      const int64_t of_head = first_entry(a.call, sequence, head);
      for (int side = 0; side < 2; ++side) {
        if (side == 1 && a.bounds.from == nullptr) break;
        KeyBound& bound = side == 0 ? a.bounds.before[of_head + task.tile + 1] : a.bounds.from[of_head + task.tile];
        const float slope = side == 0 ? slopes.before : slopes.after;
        // Each thread sums the weights of 8 keys for one of the 8 values of x.
        const int level = i % bound_levels;
        const float x = length * bound_level(level);
        float part = 0;
        for (int j = i / bound_levels * 8; j < i / bound_levels * 8 + 8 && j < count; ++j) {
          const auto distance = static_cast<float>(side == 0 ? block_keys - 1 - j : j);
          float exponent = x * (at(radii_at, j) - largest) - slope * distance;
          if constexpr (form == Form::gates) {
            const GateBlock& gates = a.call.gates[of_head + task.tile];
            if (gates.documents[block_keys - 1] > first + j) continue;  // later rows do not see it
            exponent += gates.to_end[j];
          }
          part += power_of_2(exponent);
        }
        block_sync();
        set(parts_at, i, part);
        block_sync();
        if (i < bound_levels) {
          float sum = 0;
          for (int j = 0; j < threads / bound_levels; ++j) sum += at(parts_at, j * bound_levels + level);
          // Covers the errors of the exponents (down to -126), of the powers and of the sum, and powers that underflow.
          const float weights = sum * (1 + 0x1p-14f) + block_keys * 0x1p-125f;
          const float most = x * largest * (1 + 0x1p-21f), logarithm = log2f(weights);
          const float value = most + logarithm + 0x1p-20f * (most + fabsf(logarithm));
          bound.weights[level] = largest < infinity && value < infinity ? value : infinity;
        }
        if (i == 0) {
          bound.radius = largest;
          bound.norm = longest + a.bounds.centre_norms[entry];
        }
      }
    }
  }
};

/// One thread block for each head of each sequence, one warp for each number of its entries. Replaces the bounds of
/// single blocks by the bounds of all blocks before the block, or from the block on. Each lane sums a range of blocks.
/// A scan over the lanes gives the sums of all earlier ranges. Then each lane sums its range again, starting from
/// those.
template <Form form>
struct Accumulate {
  using Arguments = BoundsArguments;
  static constexpr int numbers = bound_levels + 2;
  static constexpr int threads = 32 * numbers, blocks_at_once = 2;
  static constexpr int shared_bytes = threads * 4;

  float farther;  ///< log2 of the factor that the next block's distance applies to a block's weights; negative if
                  ///< maxima are computed
  const GateBlock* gates;

  /// Upper bound of the sum of two bounds: of the `blocks` blocks before block `end`, and of all keys before those.
  ALIBI_LANE float combined(float before, int end, int blocks, float own) const {
    if (farther < 0) return fmaxf(before, own);
    float away = farther * static_cast<float>(blocks);
    if constexpr (form == Form::gates) {
      away -= gates[end].document >= (end - blocks) * block_keys ? -1e30f : sum_of_blocks(gates, end - blocks, end);
    }
    const float moved = before - away + 0x1p-21f * (fabsf(before) + away);
    if (!(moved < infinity && own < infinity)) return infinity;
    const float high = fmaxf(moved, own), low = fminf(moved, own);
    const float sum = high + log2f(1 + power_of_2(fmaxf(low - high, -100.0f)));
    return sum + 0x1p-20f * (1 + fabsf(sum));
  }

  static ALIBI_LANE void run(const Arguments& a) {
    const int sequence_index = block_index() / a.call.heads, head = block_index() % a.call.heads;
    const SequenceRows sequence = a.call.sequences[sequence_index];
    const Slopes slopes = a.call.slopes[sequence.batch * a.call.slopes_stride + head];
    const int blocks = (sequence.keys + block_keys - 1) / block_keys;
    const int64_t of_head = first_entry(a.call, sequence, head);
    Accumulate of = {(slopes.before) * block_keys, form == Form::gates ? a.call.gates + of_head : nullptr};
    of.go(reinterpret_cast<float*>(a.bounds.before + of_head), blocks, false);
    if (a.bounds.from == nullptr) return;
    warp_sync();
    of.farther = slopes.after * block_keys;
    of.go(reinterpret_cast<float*>(a.bounds.from + of_head), blocks, true);
  }

  ALIBI_LANE void go(float* entries, int blocks, bool backwards) {
    const int number = thread_index() / 32, lane = thread_index() % 32;
    constexpr int size = sizeof(KeyBound) / sizeof(float);
    if (number >= bound_levels) farther = -1;
    const float start = farther < 0 ? 0.0f : nothing;
    // The i-th entry, counted from the end without keys. The entry for no keys comes before the first.
    const auto entry = [&](int i) -> float& { return entries[(backwards ? blocks - 1 - i : i + 1) * size + number]; };
    if (lane == 0) entry(-1) = start;
    const int each = (blocks + 31) / 32;
    const int first = lane * each < blocks ? lane * each : blocks;
    const int last = first + each < blocks ? first + each : blocks;
    float own = start;
    for (int i = first; i < last; ++i) own = combined(own, i + 1, 1, entry(i));
    const auto of_lane = [&](int other) { return static_cast<uint32_t>((number * 32 + other) * 4); };
    for (int step = 1; step < 32; step *= 2) {  // now `own` is the sum of the ranges of `step` lanes
      shared_store(of_lane(lane), own);
      warp_sync();
      const float before = lane >= step ? shared_load<float>(of_lane(lane - step)) : start;
      const int begin = (lane + 1 - step) * each;
      own = combined(before, last, begin < last ? last - begin : 0, own);
      warp_sync();
    }
    shared_store(of_lane(lane), own);
    warp_sync();
    float all = lane > 0 ? shared_load<float>(of_lane(lane - 1)) : start;
    for (int i = first; i < last; ++i) entry(i) = all = combined(all, i + 1, 1, entry(i));
  }
};

ALIBI_LANES_END
