// Values of options that are set by name.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace alibi {

/// Value of an option: the type of the member, or the name of an enumerator.
using OptionValue = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<double>>;

}  // namespace alibi
