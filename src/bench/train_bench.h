// Measures training steps: speed and memory of a model of a given size at a given length.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "alibi/language_model.h"
#include "alibi/train.h"
#include "bench/ceilings.h"
#include "bench/train_step.h"

namespace alibi::bench {

struct TrainBenchSettings {
  Precision precision = Precision::f32;
  bool recompute = false;
  int64_t batch_tokens = 8192;  ///< tokens per step, rounded to whole blocks of the length, at least one block
  int64_t micro_batch_tokens = TrainOptions().micro_batch_tokens;
  double seconds = 3;     ///< time for each point
  double longest = 30;    ///< a point is skipped if a single step would take longer
  int64_t max_bytes = 0;  ///< a point is skipped if it needs more memory; 0 selects most of the machine's memory
  uint64_t seed = 0;
};

/// Measurements of a model at one length.
struct TrainPoint {
  std::string model;  ///< name of the preset
  int layers = 0, d_model = 0, heads = 0, vocab_size = 0;
  Position position = Position::alibi;
  bool all_keys = false;  ///< ALiBi without the skip rule
  Precision precision = Precision::f32;
  bool recompute = false;
  int64_t length = 0;
  int64_t tokens = 0;  ///< tokens per step
  int64_t parameters = 0;
  double model_flops = 0;       ///< nominal, per step (training_flops_per_token): skipped work counts as done
  int64_t planned_bytes = 0;    ///< from plan_training
  double expected_seconds = 0;  ///< above 0 if the point was skipped because one step would take about this long
  bool too_large = false;       ///< skipped because planned_bytes exceeds the limit

  double seconds = 0;       ///< median seconds per step
  double best_seconds = 0;  ///< minimum seconds per step
  double of_first = 0;      ///< time as a multiple of the first model's time if the two alternated, otherwise 0
  int64_t runs = 0;
  double matmul_seconds = 0;  ///< median seconds of the matrix products alone, which alternated with the steps
  double matmul_flops = 0;    ///< FLOPs of those products
  double ceiling = 0;         ///< FLOP/s, median of the square products that alternated with the steps
  int64_t peak_bytes = 0;     ///< tensors and workspaces at the peak of a step, including weights and optimizer state
  int64_t resident_before = 0,
          peak_resident = 0;  ///< of the process, before the model was created and at the peak; 0 if unknown
  double loss = 0;            ///< loss of the first step

  bool left_out() const { return expected_seconds > 0 || too_large; }
  double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
  double matmul_share() const { return matmul_seconds / seconds; }
  /// Nominal FLOP/s.
  double rate() const { return model_flops / seconds; }
};

class TrainBench {
 public:
  /// `ceilings` must have the data type of the precision. Its products alternate with the steps.
  TrainBench(const TrainBenchSettings& settings, MatmulCeilings& ceilings);

  /// Creates the models of these complete configurations, trains them for some steps and destroys them. The steps of as
  /// many models as fit in memory alternate. The layers of all models must have the same shapes.
  std::vector<TrainPoint> measure(const std::string& name, const std::vector<LanguageModelConfig>& configs,
                                  int64_t length);

 private:
  struct Running;
  TrainPoint describe(const std::string& name, const LanguageModelConfig& config, const TrainOptions& options);
  std::unique_ptr<Running> start(TrainPoint& point, const LanguageModelConfig& config, const TrainOptions& options);
  void time(const std::vector<std::unique_ptr<Running>>& group);

  TrainBenchSettings settings_;
  MatmulCeilings& ceilings_;
  double best_rate_ = 0;  // best nominal rate of the points so far
};

}  // namespace alibi::bench
