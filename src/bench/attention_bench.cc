#include "bench/attention_bench.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "alibi/runtime.h"
#include "bench/timing.h"
#include "core/check.h"

namespace alibi::bench {
namespace {

/// Operations on the visible pairs for one call: two products of 2 d operations forward, five backward.
double nominal_flops(Pass pass, const AttentionInputs& layer) {
  const auto length = static_cast<double>(layer.length());
  const double pairs = layer.options.causal ? length * (length + 1) / 2 : length * length;
  const double forward = 4 * pairs * static_cast<double>(layer.q.size(2) * layer.q.size(3));
  return pass == Pass::forward ? forward : 3.5 * forward;
}

AttentionOptions with_tolerance(AttentionOptions options, float tolerance) {
  options.tolerance = tolerance;
  return options;
}

double share_visited(const AttentionStats& stats) {
  return stats.blocks_total == 0 ? 1
                                 : static_cast<double>(stats.blocks_visited) / static_cast<double>(stats.blocks_total);
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

/// A point while it is being measured. One run consists of a call for each layer.
struct AttentionBench::Candidate {
  AttentionPoint point;
  std::vector<AttentionInputs> layers;
  Tensor out, dout, dq, dk, dv;  // shared by all layers
  std::optional<Tensor> dgates, dtable;
  std::vector<double> forward_runs;  // backward pass: seconds of the forward part of each run
  AttentionState state;

  void make_outputs(uint64_t seed) {
    const AttentionInputs& first = layers.front();
    const DType dtype = first.q.dtype();
    out = Tensor(first.q.shape(), dtype);
    if (point.pass == Pass::forward) return;
    dout = normal_tensor(first.q.shape(), seed, 4).to(dtype);
    dq = Tensor(first.q.shape(), dtype);
    dk = Tensor(first.k.shape(), dtype);
    dv = Tensor(first.v.shape(), dtype);
    if (first.options.log_decay) dgates.emplace(first.options.log_decay->shape());
    if (first.options.buckets) dtable.emplace(first.options.buckets->table.shape());
    if (first.options.bias_by_distance) dtable.emplace(first.options.bias_by_distance->shape());
  }

  void run(bool with_statistics) {
    double forward_seconds = 0;
    for (const AttentionInputs& layer : layers) {
      const AttentionOptions options = with_tolerance(layer.options, point.tolerance);
      const bool backward = point.pass == Pass::backward;
      forward_seconds += seconds_of(
          [&] { attention(layer.q, layer.k, layer.v, options, out, backward || with_statistics ? &state : nullptr); });
      if (with_statistics) point.visited_each.push_back(share_visited(state.stats));
      if (backward)
        attention_backward(dout, layer.q, layer.k, layer.v, out, state, options, dq, dk, dv,
                           {.dtable = dtable ? &*dtable : nullptr, .dlog_decay = dgates ? &*dgates : nullptr});
    }
    forward_runs.push_back(forward_seconds);
  }
};

AttentionBench::AttentionBench(const AttentionBenchSettings& settings, DType dtype, int64_t greatest_length,
                               MatmulCeilings& ceilings)
    : settings_(settings), dtype_(dtype), ceilings_(ceilings) {
  if (settings.layers.empty()) {
    layers_.push_back(random_inputs(settings.shape, greatest_length, settings.seed).to(dtype));
  } else {
    const int64_t length = settings.layers.front().length();
    check_usage(greatest_length <= length,
                "[--lengths] found {}, but the captured tensors have {} rows; expected at most that", greatest_length,
                length);
    for (const AttentionInputs& layer : settings.layers) layers_.push_back(layer.to(dtype));
  }
}
AttentionBench::~AttentionBench() = default;

std::vector<AttentionInputs> AttentionBench::layers_of(int64_t length) const {
  std::vector<AttentionInputs> layers;
  for (const AttentionInputs& layer : layers_) layers.push_back(layer.first(length));
  return layers;
}

double AttentionBench::expected(const AttentionPoint& point, const AttentionInputs& layer) const {
  const auto layers = static_cast<double>(layers_.size());
  const auto found = measured_.find({point.pass, point.tolerance});
  if (found == measured_.end()) {
    return point.tolerance > 0 ? 0 : layers * nominal_flops(point.pass, layer) / ceilings_.best();
  }
  const std::vector<AttentionPoint>& points = found->second;
  const AttentionPoint& last = points.back();
  double exponent =
      2;  // exponent of the time as a power of the length, computed from the last two points if there are two
  if (points.size() > 1) {
    const AttentionPoint& before = points[points.size() - 2];
    const double grown = std::log(last.best_seconds / before.best_seconds);
    exponent =
        std::clamp(grown / std::log(static_cast<double>(last.length) / static_cast<double>(before.length)), 1.0, 2.0);
  }
  return layers * last.best_seconds *
         std::pow(static_cast<double>(point.length) / static_cast<double>(last.length), exponent);
}

double AttentionBench::run_once(Candidate& candidate) const {
  AttentionPoint& point = candidate.point;
  candidate.make_outputs(settings_.seed);
  const bool resident_known = reset_peak_resident_bytes();
  const int64_t resident = peak_resident_bytes();
  reset_peak_tensor_bytes();
  const int64_t tensors = tensor_bytes();
  const double seconds = seconds_of([&] { candidate.run(/*with_statistics=*/true); });
  point.peak_bytes = peak_tensor_bytes() - tensors;
  point.peak_resident = resident_known ? peak_resident_bytes() - resident : 0;
  point.visited = mean(point.visited_each);
  return seconds;
}

std::vector<AttentionPoint> AttentionBench::measure(Pass pass, int64_t length) {
  std::vector<Candidate> candidates;
  for (const float tolerance : settings_.tolerances_of(dtype_)) {
    Candidate candidate;
    candidate.layers = layers_of(length);
    candidate.point = {.pass = pass, .dtype = dtype_, .length = length, .tolerance = tolerance};
    const double expected_seconds = expected(candidate.point, candidate.layers.front());
    if (expected_seconds > settings_.longest) candidate.point.expected_seconds = expected_seconds;
    candidates.push_back(std::move(candidate));
  }

  std::vector<Work> works;
  std::vector<double> ceiling_rates;
  const auto run_ceiling = [&] {
    constexpr size_t enough = 5;
    if (ceiling_rates.size() >= enough) return;
    ceiling_rates.push_back(ceilings_.run());
  };
  std::vector<Candidate*> timed;
  for (Candidate& candidate : candidates) {
    if (candidate.point.left_out()) continue;
    const double first = run_once(candidate);
    Work work{.run = [&candidate] { candidate.run(false); }};
    if (timed.empty()) work.prepare = run_ceiling;
    // A first call that takes the whole time counts as a measurement.
    if (first >= settings_.seconds) {
      work.seconds.push_back(first);
    } else {
      candidate.forward_runs.clear();
    }
    works.push_back(std::move(work));
    timed.push_back(&candidate);
  }
  run_in_turns(works, {.seconds = settings_.seconds});
  if (ceiling_rates.empty() && !timed.empty()) run_ceiling();

  const auto layers = static_cast<double>(layers_.size());
  for (size_t i = 0; i < timed.size(); ++i) {
    AttentionPoint& point = timed[i]->point;
    point.seconds = median(works[i].seconds) / layers;
    point.best_seconds = least(works[i].seconds) / layers;
    point.forward_seconds = median(timed[i]->forward_runs) / layers;
    point.runs = static_cast<int64_t>(works[i].seconds.size());
    point.flops = nominal_flops(pass, timed[i]->layers.front());
    point.ceiling = median(ceiling_rates);
    measured_[{pass, point.tolerance}].push_back(point);
  }
  std::vector<AttentionPoint> points;
  for (Candidate& candidate : candidates) points.push_back(std::move(candidate.point));
  return points;
}

std::vector<std::vector<double>> AttentionBench::visited_by_head(int64_t length) const {
  std::vector<std::vector<double>> shares;
  const float tolerance = settings_.tolerances_of(dtype_).back();
  for (const AttentionInputs& layer : layers_of(length)) {
    shares.emplace_back();
    for (int64_t head = 0; head < layer.q.size(2); ++head) {
      const AttentionInputs one = layer.head(head);
      Tensor out = Tensor::empty(one.q.shape(), dtype_);
      AttentionState state;
      attention(one.q, one.k, one.v, with_tolerance(one.options, tolerance), out, &state);
      shares.back().push_back(share_visited(state.stats));
    }
  }
  return shares;
}

}  // namespace alibi::bench
