// The position methods that most tests of models run for: every method by itself, and some combinations.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "alibi/transformer.h"

namespace alibi::test {

inline std::vector<Position> position_cases() {
  std::vector<Position> cases;
  for (const std::string& name : position_names()) cases.push_back(position_from(name));
  cases.insert(cases.end(), {Position::rotary + Position::alibi, Position::rotary + Position::t5,
                             Position::sinusoidal + Position::alibi});
  return cases;
}

/// The name of a test, in which '+' is not allowed.
inline std::string case_name(const Position& position) {
  std::string name = name_of(position);
  std::replace(name.begin(), name.end(), '+', '_');
  return name;
}

}  // namespace alibi::test
