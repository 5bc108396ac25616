// Measures steps of training: the speed and memory of a model of a given size at a given length.
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
  int64_t batch_tokens = 8192;  ///< of a step, rounded to whole blocks of the length, at least one
  int64_t micro_batch_tokens = TrainOptions().micro_batch_tokens;
  double seconds = 3;      ///< time for each point
  double longest = 30;     ///< points whose single step would take longer are left out
  int64_t most_bytes = 0;  ///< and those that would need more memory; 0: most of what the machine has
  uint64_t seed = 0;
};

/// A model at one length.
struct TrainPoint {
  std::string model;  ///< name of the preset
  int layers = 0, d_model = 0, heads = 0, vocab_size = 0;
  Position position = Position::alibi;
  bool all_keys = false;  ///< alibi, without the skip rule
  Precision precision = Precision::f32;
  bool recompute = false;
  int64_t length = 0;
  int64_t tokens = 0;  ///< of a step
  int64_t parameters = 0;
  double model_flops = 0;       ///< nominal, of a step (training_flops_per_token): skipped work counts as done
  int64_t planned_bytes = 0;    ///< of training (plan_training)
  double expected_seconds = 0;  ///< > 0: left out, as a step would have taken about this long
  bool too_large = false;       ///< left out, as planned_bytes are more than allowed

  double seconds = 0;       ///< of a step, median
  double best_seconds = 0;  ///< least
  double of_first = 0;      ///< seconds over those of the first model, if it alternated with this one, else 0
  int64_t runs = 0;
  double matmul_seconds = 0;  ///< of its matrix products alone, which alternated with it; median
  double matmul_flops = 0;    ///< of those
  double ceiling = 0;         ///< FLOP/s, median of the square products that alternated with it
  int64_t peak_bytes = 0;     ///< tensors and workspaces at the peak of a step, with weights and optimizer
  int64_t resident_before = 0,
          peak_resident = 0;  ///< of the process, before the model was made and at most; 0: unknown
  double loss = 0;            ///< of the first step

  bool left_out() const { return expected_seconds > 0 || too_large; }
  double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
  double matmul_share() const { return matmul_seconds / seconds; }
  /// Nominal FLOP/s.
  double rate() const { return model_flops / seconds; }
};

class TrainBench {
 public:
  /// `ceilings` must have the data type of the precision. Their products alternate with the steps.
  TrainBench(const TrainBenchSettings& settings, MatmulCeilings& ceilings);

  /// Makes the models of these complete configurations, trains them for some steps and destroys them. Their steps
  /// alternate, for as many models as fit in memory. Their layers must have the same shapes.
  std::vector<TrainPoint> measure(const std::string& name, const std::vector<LanguageModelConfig>& configs,
                                  int64_t length);

 private:
  struct Running;
  TrainPoint describe(const std::string& name, const LanguageModelConfig& config, const TrainOptions& options);
  std::unique_ptr<Running> start(TrainPoint& point, const LanguageModelConfig& config, const TrainOptions& options);
  void time(const std::vector<std::unique_ptr<Running>>& group);

  TrainBenchSettings settings_;
  MatmulCeilings& ceilings_;
  double best_rate_ = 0;  // nominal, of the points so far
};

}  // namespace alibi::bench
