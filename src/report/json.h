// Writing and reading results.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "alibi/results.h"

namespace alibi::report {

/// One element of "eval". Numbers that are not finite become null; a gap has "error" and null numbers.
nlohmann::ordered_json to_json(const EvaluationPoint& point);

/// One of "runs".
nlohmann::ordered_json to_json(const RunResults& run);
/// Throws Error as results_from_json() does; `where` begins the path of the key.
RunResults run_from_json(const nlohmann::json& json, const std::string& where);

/// "speed".
nlohmann::ordered_json to_json(const std::vector<MethodSpeed>& speeds);
std::vector<MethodSpeed> speed_from_json(const nlohmann::json& json, const std::string& where);

/// The whole file, keys in a fixed order, arrays of numbers on one line. Text that is not UTF-8 is repaired (U+FFFD).
std::string to_json(const CompareResults& results);

/// Reads what to_json wrote, in this version or an earlier one. Keys that not every version wrote may be missing and
/// keep their defaults, unknown keys are ignored, null numbers are NaN. Methods are computed from their runs.
/// Throws Error, naming `source` and the key, for text that is not JSON, what is missing, and values of the wrong kind.
CompareResults results_from_json(std::string_view text, const std::string& source = "");

}  // namespace alibi::report
