// Results of the training benchmark, as lines of text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/train_bench.h"

namespace alibi::bench {

/// Heading of a model's points and column titles; ends with a newline, like the rows.
std::string train_table_head(const std::string& name, const LanguageModelConfig& config,
                             const TrainBenchSettings& settings);
/// `ceiling`: the best rate of matrix products so far, FLOP/s.
std::string train_table_row(const TrainPoint& point, double ceiling);

nlohmann::ordered_json to_json(const TrainPoint& point, double ceiling);

}  // namespace alibi::bench
