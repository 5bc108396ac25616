// Writing and reading results.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "alibi/results.h"

namespace alibi::report {

/// One element of "eval". Numbers that are not finite become null. A gap has the key "error" and null numbers.
nlohmann::ordered_json to_json(const EvaluationPoint& point);

/// One element of "runs".
nlohmann::ordered_json to_json(const RunResults& run);
/// Throws Error like results_from_json(). `where` is the first part of the path in messages.
RunResults run_from_json(const nlohmann::json& json, const std::string& where);

/// The value of "speed".
nlohmann::ordered_json to_json(const std::vector<MethodSpeed>& speeds);
std::vector<MethodSpeed> speed_from_json(const nlohmann::json& json, const std::string& where);

/// The whole file: keys in a fixed order, arrays of numbers on one line. Invalid UTF-8 is replaced by U+FFFD. "methods"
/// and "report" (sentences, tables and colours for the page) follow from "runs", and no reader of ours uses them.
std::string to_json(const CompareResults& results);

/// Reads what to_json wrote. A missing key that is not required keeps its default. Unknown keys are ignored. A null
/// number becomes NaN. The methods are computed from their runs. Throws Error, naming `source` and the key, if the text
/// is not JSON, a required key is missing, or a value has the wrong type.
CompareResults results_from_json(std::string_view text, const std::string& source = "");

}  // namespace alibi::report
