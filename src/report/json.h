// results.json: written, and read again so that a report can be redrawn.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "alibi/results.h"

namespace alibi {

/// One element of "eval". Numbers that are not finite become null; a gap has "error" and null numbers.
nlohmann::ordered_json to_json(const EvaluationPoint& point);

/// The whole file, keys in a fixed order, arrays of numbers on one line. Text that is not UTF-8 is repaired (U+FFFD).
std::string to_json(const CompareResults& results);

/// Reads what to_json wrote. Keys that are missing keep their defaults, unknown keys are ignored, null numbers are NaN.
/// Throws Error, naming the key, for text that is not JSON or values of the wrong kind.
CompareResults results_from_json(std::string_view text);

}  // namespace alibi
