// Results of the training benchmark, as lines of text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/train_bench.h"

namespace alibi::bench {

/// Heading of a model's points and column titles. Like the rows, it ends with a newline.
std::string train_table_head(const std::string& name, const LanguageModelConfig& config,
                             const TrainBenchSettings& settings);
/// `ceiling` is the best rate of matrix products so far in FLOP/s.
std::string train_table_row(const TrainPoint& point, double ceiling);

nlohmann::ordered_json to_json(const TrainPoint& point, double ceiling);

}  // namespace alibi::bench
