// Results of the attention benchmarks, as lines of text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/attention_point.h"
#include "bench/ceilings.h"

namespace alibi::bench {

/// Heading and column titles of a pass. Like all texts below, it ends with a newline.
std::string table_head(Pass pass, DType dtype);
/// `ceiling` is the best rate of matrix products so far in FLOP/s. For decoding it is the best rate of reading memory
/// in bytes/s.
std::string table_row(const AttentionPoint& point, double ceiling);
/// Memory of forward and backward at tolerance 0 against length, or "" if it was not measured.
std::string memory_table(const std::vector<AttentionPoint>& points);
std::string head_table(const std::vector<std::vector<double>>& visited_by_head, int64_t length);

nlohmann::ordered_json to_json(const AttentionPoint& point);
nlohmann::ordered_json to_json(const MatmulCeilings& ceilings);

}  // namespace alibi::bench
