// What a comparison measures when the user says nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace alibi::comparison {

/// 1, 1.25, 1.5, 2, 3, 4, 6, 8, 16 times the training length, rounded to whole tokens.
std::vector<int64_t> lengths_to_measure(int64_t train_length);

/// Held-out tokens to score: by the size of the model, and at least sixteen blocks of the longest length, so that
/// there is something to draw from where intervals are told.
int64_t tokens_to_score(const std::string& preset, int64_t longest);

}  // namespace alibi::comparison
