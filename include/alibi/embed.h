// Vectors of texts: the final states of their tokens, pooled to one.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "alibi/enum_names.h"
#include "alibi/export.h"
#include "alibi/language_model.h"
#include "alibi/tensor.h"

namespace alibi {

/// A text is read behind an end of text, as a document is in training.
enum class Pooling : uint8_t {
  mean,   ///< of the text's tokens
  first,  ///< the end of text before them; decoders have seen nothing there
  last,   ///< the last token; of a decoder it has seen all of the text
};

template <>
inline constexpr auto enum_names<Pooling> =
    std::to_array<EnumName<Pooling>>({{Pooling::mean, "mean"}, {Pooling::first, "first"}, {Pooling::last, "last"}});
ALIBI_API const char* name_of(Pooling);
/// Throws UsageError with the names to choose from.
ALIBI_API Pooling pooling_from(std::string_view name);

struct EmbedOptions {
  Pooling pooling = Pooling::mean;
  bool normalize = false;        ///< to Euclidean length 1
  int64_t batch_tokens = 16384;  ///< texts of one length go through the model together, up to so many tokens
};

/// float32 [texts, d_model]. A text of no tokens has the state of the end of text. Results do not depend on what texts
/// are given together, but to rounding. Throws UsageError for Pooling::first of a decoder, Error if the positions of
/// the model end before a text.
ALIBI_API Tensor embed(const LanguageModel& model, std::span<const std::string> texts,
                       const EmbedOptions& options = {});

}  // namespace alibi
