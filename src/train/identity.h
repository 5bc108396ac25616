// What a run is: everything that its result follows from. A checkpoint carries it, and is continued by the same only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "alibi/train.h"
#include "formats/json.h"

namespace alibi::training {

/// 64 bits of the tokens, as 16 hexadecimal digits: of all of them, or of about 64 million, evenly spread, if there are
/// more. Not a defence against forgery.
std::string fingerprint(std::span<const int32_t> tokens);

/// Names and values of the options, of what the model computes, and of the tokens.
formats::OrderedJson identity_of(const LanguageModel& model, std::span<const int32_t> tokens,
                                 std::span<const int32_t> valid, const TrainOptions& options);

/// One line for each value that differs: "learning_rate is 0.002, was 0.001". An option that `known` lacks, because the
/// version that wrote it did, had its default.
std::vector<std::string> differences(const formats::OrderedJson& now, const formats::Json& known);

}  // namespace alibi::training
