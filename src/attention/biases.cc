#include "attention/biases.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/check.h"

namespace alibi {
namespace {

/// The geometric sequence for a power of two: 2^(-bias_max * (i + 1) / n).
float slope_of(int i, int n, double bias_max) {
  return static_cast<float>(std::exp2(-bias_max * static_cast<double>(i + 1) / static_cast<double>(n)));
}

}  // namespace

std::vector<float> slopes(int heads, double bias_max) {
  check_usage(heads >= 1 && heads <= (1 << 20), "[slopes] the number of heads is {}, expected 1 to {}", heads, 1 << 20);
  check_usage(bias_max > 0 && std::isfinite(bias_max), "[slopes] bias_max is {}, expected a positive finite number",
              bias_max);
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(heads)));
  std::vector<float> result;
  result.reserve(static_cast<size_t>(heads));
  for (int i = 0; i < power; ++i) result.push_back(slope_of(i, power, bias_max));
  // The remaining slopes lie between these: the 1st, 3rd, 5th, ... slope for twice as many heads.
  for (int i = 0; i < heads - power; ++i) result.push_back(slope_of(2 * i, 2 * power, bias_max));
  return result;
}

int relative_position_bucket(int64_t distance, bool causal, int num_buckets, int max_distance) {
  // Half of the buckets of a side hold one distance each. The other half grow logarithmically up to max_distance.
  int first = 0;
  if (!causal) {
    num_buckets /= 2;
    if (distance < 0) first = num_buckets;
    distance = std::abs(distance);
  }
  distance = std::max<int64_t>(distance, 0);
  const int exact = num_buckets / 2;
  if (distance < exact) return first + static_cast<int>(distance);
  if (distance >= max_distance) return first + num_buckets - 1;
  const double octaves =
      std::log(static_cast<double>(distance) / exact) / std::log(static_cast<double>(max_distance) / exact);
  constexpr double rounding = 1e-9;  // a distance on the edge of a bucket belongs to the upper bucket
  const int step = static_cast<int>(octaves * (num_buckets - exact) + rounding);
  return first + std::min(exact + step, num_buckets - 1);
}

namespace kernels {
namespace {

/// Kernels compute with slope x log2(e), which must be finite: infinity times a distance of 0 is NaN.
constexpr float max_slope = 0x1p126f;

void check_slopes(const char* operation, const char* name, const std::vector<float>& slopes, int64_t sequences,
                  int64_t heads) {
  const auto size = static_cast<int64_t>(slopes.size());
  check_usage(size == heads || size == sequences * heads,
              "[{}] {} has {} values, expected {} (heads) or {} (heads of each batch entry or packed sequence)",
              operation, name, size, heads, sequences * heads);
  for (size_t i = 0; i < slopes.size(); ++i) {
    check_usage(slopes[i] >= 0 && (slopes[i] <= max_slope || std::isinf(slopes[i])),
                "[{}] {}[{}] is {}, expected 0 to 2^126, or infinity, which hides the keys of that direction",
                operation, name, i, slopes[i]);
  }
}

/// One value for each head of each sequence.
std::vector<float> spread(const std::vector<float>& slopes, int64_t sequences, int64_t heads) {
  std::vector<float> result(static_cast<size_t>(sequences * heads), 0.0f);
  for (size_t i = 0; i < result.size() && !slopes.empty(); ++i) result[i] = slopes[i % slopes.size()];
  return result;
}

void set_slopes(const char* operation, const AttentionOptions& options, int64_t sequences, int64_t heads,
                Biases& biases) {
  if (!options.alibi_slopes.empty()) check_slopes(operation, "alibi_slopes", options.alibi_slopes, sequences, heads);
  if (!options.alibi_slopes_after.empty()) {
    check_usage(!options.causal, "[{}] alibi_slopes_after is set, but causal attention sees no keys after the query",
                operation);
    check_usage(!options.alibi_slopes.empty(), "[{}] alibi_slopes_after is set without alibi_slopes", operation);
    check_slopes(operation, "alibi_slopes_after", options.alibi_slopes_after, sequences, heads);
  }
  biases.slopes_before = spread(options.alibi_slopes, sequences, heads);
  biases.slopes_symmetric = options.alibi_slopes_after.empty();
  biases.slopes_after =
      biases.slopes_symmetric ? biases.slopes_before : spread(options.alibi_slopes_after, sequences, heads);
  const auto given = static_cast<int64_t>(options.alibi_slopes.size());
  biases.slopes_per_sequence = given > 0 && given != heads;
}

constexpr int64_t max_rows_of_table = 1 << 24;

void check_table(const char* operation, const char* name, const char* rows, const Tensor& table, int64_t heads) {
  check_usage(table.defined() && table.axes() == 2 && table.dtype() == DType::float32,
              "[{}] {} has shape {}, expected float32 [{}, heads]", operation, name, table.shape(), rows);
  check_usage(table.size(1) == heads, "[{}] {} has {} heads, q has {}", operation, name, table.size(1), heads);
}

std::unique_ptr<BiasTable> table_of(const char* operation, const BucketedBias& buckets, bool causal, int64_t heads) {
  check_table(operation, "buckets.table", "num_buckets", buckets.table, heads);
  const int64_t sides = causal ? 1 : 2, count = buckets.table.size(0);
  check_usage(count >= 2 * sides && count % (2 * sides) == 0 && count <= 1 << 20,
              "[{}] buckets.table has {} buckets, expected a multiple of {}", operation, count, 2 * sides);
  check_usage(buckets.max_distance > count / (2 * sides) && buckets.max_distance <= max_rows_of_table,
              "[{}] buckets.max_distance is {}, expected more than {}, the number of distances that have their "
              "own bucket",
              operation, buckets.max_distance, count / (2 * sides));
  const int64_t of_side = count / sides;
  std::vector<int64_t> starts = {0};
  while (std::ssize(starts) < of_side) {
    int64_t low = starts.back(), high = buckets.max_distance;  // the first distance of the next bucket or a later one
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      const int bucket = relative_position_bucket(middle, true, static_cast<int>(of_side), buckets.max_distance);
      bucket >= std::ssize(starts) ? high = middle : low = middle + 1;
    }
    starts.push_back(low);
  }
  const TableSide before = {.count = of_side};
  const TableSide after = causal ? TableSide() : TableSide{.first = of_side, .count = of_side};
  return std::make_unique<BiasTable>(buckets.table, before, after, std::move(starts), buckets.max_distance);
}

std::unique_ptr<BiasTable> table_of(const char* operation, const Tensor& by_distance, bool causal, int64_t heads) {
  check_table(operation, "bias_by_distance", causal ? "distances" : "2 * distances - 1", by_distance, heads);
  const int64_t rows = by_distance.size(0);
  check_usage(rows >= 1 && rows <= max_rows_of_table && (causal || rows % 2 == 1),
              "[{}] bias_by_distance has {} rows, expected {} up to {}", operation, rows,
              causal ? "1 or more" : "an odd number (as many distances after the query as before it)",
              max_rows_of_table);
  const int64_t zero = causal ? 0 : rows / 2, farthest = rows - 1 - zero;
  const TableSide before = {.first = zero, .count = rows - zero},
                  after = {.first = zero, .step = -1, .count = zero + 1};
  return std::make_unique<BiasTable>(by_distance, before, after, std::vector<int64_t>(), farthest);
}

/// The innermost ReuseBiases of this thread.
thread_local ReuseBiases* reusing = nullptr;

template <class T, class Same>
bool same_or_absent(const std::optional<T>& a, const std::optional<T>& b, const Same& same) {
  return a && b ? same(*a, *b) : !a && !b;
}

}  // namespace

Biases make_biases(const char* operation, const AttentionOptions& options, int64_t sequences, int64_t heads) {
  const int kinds =
      (options.alibi_slopes.empty() ? 0 : 1) + (options.buckets ? 1 : 0) + (options.bias_by_distance ? 1 : 0);
  check_usage(kinds <= 1, "[{}] options has {} of slopes, buckets and bias_by_distance, expected at most one",
              operation, kinds);
  Biases biases;
  biases.heads = heads;
  set_slopes(operation, options, sequences, heads, biases);
  if (options.buckets) biases.table = table_of(operation, *options.buckets, options.causal, heads);
  if (options.bias_by_distance) biases.table = table_of(operation, *options.bias_by_distance, options.causal, heads);
  if (biases.table != nullptr) {
    biases.of_table.reserve(static_cast<size_t>(heads));
    for (int64_t head = 0; head < heads; ++head) biases.of_table.emplace_back(*biases.table, head);
    return biases;
  }
  biases.of_slopes.reserve(biases.slopes_before.size());
  for (size_t i = 0; i < biases.slopes_before.size(); ++i) {
    biases.of_slopes.emplace_back(biases.slopes_before[i], biases.slopes_after[i], biases.slopes_symmetric);
  }
  return biases;
}

ReuseBiases::ReuseBiases() : outer_(reusing) { reusing = this; }
ReuseBiases::~ReuseBiases() { reusing = outer_; }

bool ReuseBiases::has(const AttentionOptions& options, int64_t sequences, int64_t heads) const {
  const auto same_table = [](const Tensor& a, const Tensor& b) { return a.raw() == b.raw() && a.shape() == b.shape(); };
  const auto same_buckets = [&](const BucketedBias& a, const BucketedBias& b) {
    return a.max_distance == b.max_distance && same_table(a.table, b.table);
  };
  return biases_ != nullptr && sequences_ == sequences && heads_ == heads && options_.causal == options.causal &&
         options_.alibi_slopes == options.alibi_slopes && options_.alibi_slopes_after == options.alibi_slopes_after &&
         same_or_absent(options_.buckets, options.buckets, same_buckets) &&
         same_or_absent(options_.bias_by_distance, options.bias_by_distance, same_table);
}

std::shared_ptr<const Biases> biases_of(const char* operation, const AttentionOptions& options, int64_t sequences,
                                        int64_t heads) {
  if (reusing != nullptr && reusing->has(options, sequences, heads)) return reusing->biases_;
  auto biases = std::make_shared<const Biases>(make_biases(operation, options, sequences, heads));
  if (reusing != nullptr) {
    reusing->options_ = options;
    reusing->sequences_ = sequences;
    reusing->heads_ = heads;
    reusing->biases_ = biases;
  }
  return biases;
}

}  // namespace kernels
}  // namespace alibi
