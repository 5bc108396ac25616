// What a model was trained on, told by its folder: enough to know that text again, and what was held out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "text/text_sketch.h"

namespace alibi::training {

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
