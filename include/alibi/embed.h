// Embedding vectors of texts: the final states of their tokens, pooled into one vector.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "alibi/enum_names.h"
#include "alibi/export.h"
#include "alibi/language_model.h"
#include "alibi/tensor.h"

namespace alibi {

/// Pooling of the final states. A text is read after an end-of-text token, like a document in training.
enum class Pooling : uint8_t {
  mean,   ///< mean of the states of the text's tokens
  first,  ///< state of the end-of-text token before the text; encoders only
  last,   ///< state of the last token, which in a decoder has seen the whole text
};

template <>
inline constexpr auto enum_names<Pooling> =
    std::to_array<EnumName<Pooling>>({{Pooling::mean, "mean"}, {Pooling::first, "first"}, {Pooling::last, "last"}});
ALIBI_API const char* name_of(Pooling);
/// Throws UsageError with the valid names.
ALIBI_API Pooling pooling_from(std::string_view name);

struct EmbedOptions {
  Pooling pooling = Pooling::mean;
  bool normalize = false;        ///< scale vectors to Euclidean length 1
  int64_t batch_tokens = 16384;  ///< maximum number of tokens of the texts, all of one length, that are computed
                                 ///< together
};

/// Returns float32 [texts, d_model]. A text without tokens gets the state of the end-of-text token. The other texts of
/// the call change a vector by rounding only. Throws UsageError for Pooling::first with a decoder, and Error if the
/// positions of the model end before a text does.
ALIBI_API Tensor embed(const LanguageModel& model, std::span<const std::string> texts,
                       const EmbedOptions& options = {});

}  // namespace alibi
