// Results of the attention benchmarks, as lines of text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/attention_point.h"
#include "bench/ceilings.h"

namespace alibi::bench {

/// Heading and column titles of a pass; ends with a newline, like all below.
std::string table_head(Pass pass, DType dtype);
/// `ceiling`: the best rate of matrix products so far in FLOP/s; for decoding, of reading memory in bytes/s.
std::string table_row(const AttentionPoint& point, double ceiling);
/// How the memory of forward and backward at tolerance 0 grows with length; empty if it was not measured.
std::string memory_table(const std::vector<AttentionPoint>& points);
std::string head_table(const std::vector<std::vector<double>>& visited_by_head, int64_t length);

nlohmann::ordered_json to_json(const AttentionPoint& point);
nlohmann::ordered_json to_json(const MatmulCeilings& ceilings);

}  // namespace alibi::bench
