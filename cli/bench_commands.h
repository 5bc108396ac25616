// Benchmarks that have their own files. Each function adds its command to the group.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "alibi/tensor.h"

namespace CLI {
class App;
}

namespace alibi::cli {

void add_bench_generate(CLI::App& bench);
void add_bench_sequence(CLI::App& bench);
void add_bench_train(CLI::App& bench);

/// The values of --dtype and of an entry of --tolerance. Throw UsageError that names the option.
std::vector<DType> dtypes_from(const std::string& name);
float tolerance_from(const std::string& text);

/// The JSON record of a benchmark: its name, the command, the version and the machine, then `more`, and an empty list
/// of points.
nlohmann::ordered_json bench_record(const char* name, const nlohmann::ordered_json& more = {});

}  // namespace alibi::cli
