// The identity of a run: everything that determines its result. A checkpoint stores it, and only a run with the same
// identity can resume. Also the record in a model folder of the text that the model was trained on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "alibi/train.h"
#include "formats/json.h"
#include "ranks/group.h"
#include "text/text_sketch.h"

namespace alibi::training {

/// A 64-bit hash of the tokens in 16 hexadecimal digits. It covers about 64 million evenly spread tokens, or all tokens
/// if there are fewer. It does not protect against forgery. Checkpoints store it.
std::string fingerprint(std::span<const int32_t> tokens);

/// Names and values of the options, the model's configuration and the tokens.
formats::OrderedJson identity_of(const LanguageModel& model, std::span<const int32_t> tokens,
                                 std::span<const int32_t> valid, const TrainOptions& options);

/// The same for ranks::check_same().
ranks::NamedValues named_values(const formats::OrderedJson& identity);
/// A hash of all parameters of the model.
std::string weights_digest(const LanguageModel& model);

/// One line per value that differs: "learning_rate is 0.002, was 0.001". If the position method differs, that is
/// named and not the fields that only one method has.
std::vector<std::string> differences(const formats::OrderedJson& now, const formats::Json& known);

struct TrainedOn {
  text::TextSketch text;
  std::string held_out_fingerprint;  ///< hash of all held-out tokens (identity.h)
};

inline constexpr const char* kTrainedOnFile = "trained_on.json";
void write_trained_on(const std::filesystem::path& folder, std::span<const int32_t> tokens,
                      std::span<const int32_t> held_out);
/// Returns nothing if the folder does not have the file. Throws Error that names the file and the problem.
std::optional<TrainedOn> read_trained_on(const std::filesystem::path& folder);

}  // namespace alibi::training
