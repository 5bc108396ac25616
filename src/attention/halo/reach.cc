#include "attention/halo/reach.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "attention/skip/rule.h"
#include "attention/workspace.h"
#include "core/parallel.h"

namespace alibi::kernels::halo {
namespace {

constexpr double log2e = std::numbers::log2e;

/// The samples [begin, end) lie in a shard.
Range samples_in(const Sample& sample, const Range& shard) {
  const auto first_from = [&](int64_t row) {
    return std::min(sample.count, core::ceil_div(row, std::max<int64_t>(1, sample.step)));
  };
  return {first_from(shard.begin), first_from(shard.end)};
}

/// A query block of this rank and what the rule needs of its rows. Logarithms are to base 2.
class QueryRows {
 public:
  QueryRows(const Problem& problem, const WeightBounds& bounds, size_t s, int64_t head, int64_t row, int64_t rows)
      : problem_(problem), keys_(bounds.head(s, head)), sequence_(problem.sequences[s]) {
    const int64_t size = bounds.size();
    position_ = sequence_.query_offset + row;
    Workspace workspace = Workspace::take(static_cast<size_t>(2 * rows * size));
    float* const queries = workspace.part(rows * size);
    float* const keys = workspace.part(rows * size);
    Sequence here = sequence_;
    here.query_begin += row;
    here.key_begin += position_;
    load_rows(problem, here, BlockIndex::Of::queries, 1, rows, head, queries, size);
    load_rows(problem, here, BlockIndex::Of::keys, 1, rows, head / problem.group(), keys, size);
    const double unit = static_cast<double>(problem.scale) * log2e;
    const double own_bias = problem.bias(sequence_, head)->precise_at(0) * log2e;
    double least = HUGE_VAL, most = 0;
    for (int64_t i = 0; i < rows; ++i) {
      double squares = 0, centred = 0, own = 0;
      for (int64_t d = 0; d < size; ++d) {
        const auto q = static_cast<double>(queries[i * size + d]);
        squares += q * q;
        centred += q * static_cast<double>(keys_.centre[d]);
        own += q * static_cast<double>(keys[i * size + d]);
      }
      const double norm = std::sqrt(squares),
                   score = problem.score_scale().capped(unit / log2e * own) * log2e + own_bias;
      rows_.push_back({.norm = norm, .product = unit * centred, .share = 0, .top = score});
      least = std::min(least, std::abs(unit) * norm);
      most = std::max(most, std::abs(unit) * norm);
    }
    levels_ = keys_.levels_of(static_cast<float>(least), static_cast<float>(most) * (1 + 0x1p-20f));
    for (SkipRow<double>& row_of : rows_) {
      row_of.share = static_cast<double>(levels_.share(static_cast<float>(std::abs(unit) * row_of.norm)));
    }
  }

  /// Whether every row can leave out the keys before a block, or from it on, because they weigh little even in
  /// comparison with the row's own key alone. The kernel compares them with all keys that it has visited.
  bool negligible(const HeadBias& bias, int64_t block, int64_t block_rows, bool before) const {
    const Chord chord = before ? keys_.chord_before(levels_, block) : keys_.chord_from(levels_, block);
    const double unit = std::abs(static_cast<double>(problem_.scale)) * log2e;
    const auto of = [&](const float* all_before, const float* all_from) {
      return static_cast<double>((before ? all_before : all_from)[block]);
    };
    const double centre_norm = static_cast<double>(keys_.centre_norm);
    const RemainingKeys keys = {.score_per_norm = unit * (of(keys_.norm_before, keys_.norm_from) + centre_norm),
                                .radius_per_norm = unit * of(keys_.radius_before, keys_.radius_from),
                                .biases = static_cast<double>((before ? keys_.before : keys_.from)[block].front()),
                                .summed = true,
                                .low = static_cast<double>(chord.low),
                                .rise = static_cast<double>(chord.rise)};
    const Roundings roundings = Roundings::of_any_kernel(problem_, sequence_.keys);
    const double budget = std::log2(static_cast<double>(skip_budget(problem_)));
    const int64_t nearest = before ? block * block_rows - 1 : block * block_rows;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const int64_t distance = std::abs(position_ + static_cast<int64_t>(i) - nearest);
      double beyond = bias->beyond(before ? Side::before : Side::after, distance) * log2e;
      if (bias.decay) beyond -= gates_in_log2(bias.decay, nearest, position_ + static_cast<int64_t>(i));
      // NaN is not negligible.
      if (!(SkipBound::log2_weight(DoubleMath(), rows_[i], keys, beyond, roundings) <= budget)) return false;
    }
    return true;
  }

 private:
  const Problem& problem_;
  WeightBounds::Head keys_;
  const Sequence& sequence_;
  int64_t position_;
  Levels levels_;
  std::vector<SkipRow<double>> rows_;  // the largest score is that of the row's own key
};

/// The key blocks that the queries [row, row + rows) of a head need.
Range blocks_needed(const Problem& problem, const PartSupport& parts, const WeightBounds* bounds, const Range& shard,
                    size_t s, int64_t head, int64_t row, int64_t rows) {
  const Sequence& sequence = problem.sequences[s];
  const HeadBias bias = problem.bias(sequence, head);
  const int64_t first = sequence.query_offset + row, last = first + rows - 1;
  Range needed = blocks_of(Problem::keys_seen(bias, first, last, sequence.keys), parts.key_rows);
  const Range here = blocks_of(shard, parts.key_rows);
  if (bounds == nullptr || (needed.begin >= here.begin && needed.end <= here.end)) return needed;
  const QueryRows queries(problem, *bounds, s, head, row, rows);
  // The kernel visits some blocks before it knows its own scores.
  const int64_t ahead = parts.blocks_at_once - 1;
  if (needed.begin < here.begin) {
    int64_t low = needed.begin,
            high = std::max(needed.begin, first / parts.key_rows);  // blocks before `low` are left out
    while (low < high) {
      const int64_t middle = low + (high - low + 1) / 2;
      if (queries.negligible(bias, middle, parts.key_rows, true)) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    needed.begin = std::clamp(std::min(low, last / parts.key_rows - ahead), needed.begin, low);
  }
  if (needed.end > here.end) {
    int64_t low = std::min(needed.end, last / parts.key_rows + 1), high = needed.end;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      if (queries.negligible(bias, middle, parts.key_rows, false)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    needed.end = std::clamp(std::max(low, last / parts.key_rows + 1 + ahead), low, needed.end);
  }
  return needed;
}

}  // namespace

Samples::Samples(const SequenceRanks& ranks, const Views& views, const std::vector<const Kernel*>& kernels)
    : heads_(views.own.heads),
      kv_heads_(views.own.kv_heads),
      size_(round_up(views.own.head_dim, 16)),
      parts_(static_cast<size_t>(ranks.count)) {
  const Problem& own = views.own;
  const Sample sample(skip_rule_applies(own) ? views.layout.length : 0);
  const int64_t values = views.layout.batch * (kv_heads_ + heads_) * size_;
  for (int rank = 0; rank < ranks.count; ++rank) {
    const int64_t count = samples_in(sample, views.layout.shard(ranks, rank)).size();
    parts_[static_cast<size_t>(rank)].resize(kernels.size() + static_cast<size_t>(count * values));
  }
  const Range shard = views.layout.shard(ranks, ranks.rank), mine = samples_in(sample, shard);
  float* to = parts_[static_cast<size_t>(ranks.rank)].data();
  for (const Kernel* const kernel : kernels) *to++ = kernel->parts != nullptr && kernel->supports(views.whole) ? 1 : 0;
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    const int64_t row = i * sample.step;
    for (Sequence sequence : own.sequences) {
      sequence.query_begin += row - shard.begin;
      sequence.key_begin += row;
      for (int64_t head = 0; head < kv_heads_; ++head, to += size_) {
        load_rows(own, sequence, BlockIndex::Of::keys, 1, 1, head, to, size_);
      }
      for (int64_t head = 0; head < heads_; ++head, to += size_) {
        load_rows(own, sequence, BlockIndex::Of::queries, 1, 1, head, to, size_);
      }
    }
  }
  all_gather(ranks, parts_);
  for (size_t i = 0; i < kernels.size(); ++i) {
    supported_.push_back(std::all_of(parts_.begin(), parts_.end(), [&](const auto& part) { return part[i] != 0; }));
  }
  for (const std::vector<float>& part : parts_) {
    for (size_t at = kernels.size(); at < part.size(); at += static_cast<size_t>(values)) rows_.push_back(&part[at]);
  }
}

WeightBounds::LoadSample Samples::load() const {
  return [this](size_t s, BlockIndex::Of of, const Sample& sample, int64_t head, float* rows) {
    const int64_t number =
        static_cast<int64_t>(s) * (kv_heads_ + heads_) + (of == BlockIndex::Of::keys ? head : kv_heads_ + head);
    for (int64_t i = 0; i < sample.count; ++i) std::copy_n(row(i) + number * size_, size_, rows + i * size_);
  };
}

KeysOfAllRanks measure(const SequenceRanks& ranks, const Views& views, const Kernel& kernel, const Samples& samples) {
  const int64_t rows = kernel.parts->key_rows;
  KeysOfAllRanks result;
  result.maxima = kernel.parts->key_maxima(views.own);
  const Range own = blocks_of(views.layout.shard(ranks, ranks.rank), rows);
  if (skip_rule_applies(views.whole)) {
    result.bounds = std::make_unique<WeightBounds>(views.whole, rows, samples.load());
    core::parallel_for(own.size(), [&](int64_t i) {
      for (size_t s = 0; s < views.own.sequences.size(); ++s) {
        for (int64_t head = 0; head < views.own.kv_heads; ++head) {
          measure_keys(views.own, s, head, own.begin + i, *result.bounds);
        }
      }
    });
  }
  // Of each rank: the maxima, then the numbers of its blocks.
  const int64_t sides = views.whole.causal ? 1 : 2;
  const int64_t numbers_of_block =
      views.layout.batch * (2 * views.whole.kv_heads + sides * WeightBounds::levels * views.whole.heads);
  const int64_t numbers = result.bounds ? numbers_of_block : 0;
  std::vector<std::vector<float>> parts;
  for (int rank = 0; rank < ranks.count; ++rank) {
    const int64_t blocks = blocks_of(views.layout.shard(ranks, rank), rows).size();
    parts.emplace_back(result.maxima.size() + static_cast<size_t>(blocks * numbers));
  }
  std::vector<float>& mine = parts[static_cast<size_t>(ranks.rank)];
  std::copy(result.maxima.begin(), result.maxima.end(), mine.begin());
  const auto each_number = [&](int rank, const auto& visit) {
    if (!result.bounds) return;
    float* at = parts[static_cast<size_t>(rank)].data() + result.maxima.size();
    const Range blocks = blocks_of(views.layout.shard(ranks, rank), rows);
    for (int64_t block = blocks.begin; block < blocks.end; ++block) {
      result.bounds->each_of_block(block, [&](float& value) { visit(value, *at++); });
    }
  };
  each_number(ranks.rank, [](const float& value, float& sent) { sent = value; });
  all_gather(ranks, parts);
  for (int rank = 0; rank < ranks.count; ++rank) {
    if (rank != ranks.rank) each_number(rank, [](float& value, const float& received) { value = received; });
    for (size_t i = 0; i < result.maxima.size(); ++i) {
      result.maxima[i] = std::max(result.maxima[i], parts[static_cast<size_t>(rank)][i]);
    }
  }
  if (result.bounds) result.bounds->accumulate();
  return result;
}

std::vector<Range> reach(const Views& views, const Range& shard, const Kernel& kernel, const WeightBounds* bounds) {
  const Problem& own = views.own;
  const PartSupport& parts = *kernel.parts;
  const int64_t blocks = core::ceil_div(shard.size(), parts.query_rows);
  const auto heads = static_cast<int64_t>(own.sequences.size()) * own.heads;
  std::vector<Range> of_blocks(static_cast<size_t>(heads * blocks));
  core::parallel_for(heads * blocks, [&](int64_t i) {
    const FlushDenormals flush;
    const int64_t number = i / blocks, row = i % blocks * parts.query_rows;
    of_blocks[static_cast<size_t>(i)] =
        blocks_needed(own, parts, bounds, shard, static_cast<size_t>(number / own.heads), number % own.heads, row,
                      std::min(parts.query_rows, shard.size() - row));
  });
  // Whole blocks of every kernel, so that a backward pass by another kernel finds whole blocks too.
  constexpr int64_t grain = 64;
  std::vector<Range> result(views.layout.pairs(), shard);
  for (int64_t i = 0; i < heads * blocks; ++i) {
    const Range& needed = of_blocks[static_cast<size_t>(i)];
    if (needed.empty()) continue;
    const int64_t number = i / blocks;
    Range& rows = result[KeyPart::at(own, static_cast<size_t>(number / own.heads), number % own.heads / own.group())];
    rows.begin = std::min(rows.begin, needed.begin * parts.key_rows / grain * grain);
    rows.end = std::max(rows.end, std::min(views.layout.length, round_up(needed.end * parts.key_rows, grain)));
  }
  return result;
}

}  // namespace alibi::kernels::halo
