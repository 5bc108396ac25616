// The identity of a run: everything that determines its result. A checkpoint stores it, and only a run with the same
// identity resumes it. And what a model folder tells about the text that the model was trained on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "alibi/train.h"
#include "formats/json.h"
#include "text/text_sketch.h"

namespace alibi::training {

/// A 64-bit hash of the tokens in 16 hexadecimal digits. It reads about 64 million evenly spread tokens, or all if
/// there are fewer. It does not protect against forgery. Checkpoints store it.
std::string fingerprint(std::span<const int32_t> tokens);

/// Names and values of the options, of what the model computes, and of the tokens.
formats::OrderedJson identity_of(const LanguageModel& model, std::span<const int32_t> tokens,
                                 std::span<const int32_t> valid, const TrainOptions& options);

/// One line for each value that differs: "learning_rate is 0.002, was 0.001". An option that `known` lacks, because the
/// version that wrote it did, had its default.
std::vector<std::string> differences(const formats::OrderedJson& now, const formats::Json& known);

struct TrainedOn {
  text::TextSketch text;
  std::string held_out_fingerprint;  ///< of all tokens that were held out (identity.h)
};

inline constexpr const char* kTrainedOnFile = "trained_on.json";
void write_trained_on(const std::filesystem::path& folder, std::span<const int32_t> tokens,
                      std::span<const int32_t> held_out);
/// Nothing if the folder does not have the file. Throws Error that names the file and what is wrong with it.
std::optional<TrainedOn> read_trained_on(const std::filesystem::path& folder);

}  // namespace alibi::training
