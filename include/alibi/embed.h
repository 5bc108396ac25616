// Embedding vectors of texts: the final states of their tokens, pooled into one vector.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/enum_names.h"
#include "alibi/export.h"
#include "alibi/language_model.h"
#include "alibi/tensor.h"

namespace alibi {

/// Pooling of the final states.
enum class Pooling : uint8_t {
  mean,   ///< mean of the states of the text's tokens
  first,  ///< state of the first token (BERT's [CLS], or the end-of-text token before the text); encoders only
  last,   ///< state of the last token, which in a decoder has seen the whole text
};

template <>
inline constexpr auto enum_names<Pooling> =
    std::to_array<EnumName<Pooling>>({{Pooling::mean, "mean"}, {Pooling::first, "first"}, {Pooling::last, "last"}});
ALIBI_API const char* name_of(Pooling);
/// Also takes "cls" for Pooling::first. Throws UsageError with the valid names.
ALIBI_API Pooling pooling_from(std::string_view name);

/// A text as a model reads it.
struct EncoderInput {
  std::vector<int32_t> ids;               ///< at least one
  std::vector<int32_t> token_types = {};  ///< segment of each id; empty: all are 0
  int64_t pooled_from = 0;  ///< Pooling::mean: index of the first id that counts; the last one always counts
};

/// Encodes a text as models read it. Models trained by this library read an end-of-text token before it, as in
/// training, which the mean does not count. For other models the tokenizer's files decide, and every id counts, as in
/// sentence-transformers. max_tokens > 0: longer texts are cut to this number of ids; the special tokens after the text
/// are kept.
ALIBI_API EncoderInput encoder_input(const LanguageModel& model, std::string_view text, int64_t max_tokens = 0);

struct EmbedOptions {
  Pooling pooling = Pooling::mean;
  bool normalize = false;  ///< scale vectors to Euclidean length 1
  /// Maximum number of tokens that are computed together. A text of up to four times as many is computed as a whole. A
  /// longer one is computed layer by layer, this many tokens at a time, in memory that does not grow with its length,
  /// if the model has ALiBi and a tolerance; its states between two layers are in temporary files if they are large.
  int64_t batch_tokens = 4096;
  int64_t max_tokens = 0;  ///< texts are cut to this number of tokens; 0: never
  /// Called with the numbers of tokens that are done and of all tokens of the call.
  std::function<void(int64_t, int64_t)> on_progress = {};
};

/// Returns float32 [texts, d_model]. Texts of any lengths are computed together without padding, and the other texts of
/// the call change a vector by rounding only. Throws UsageError for Pooling::first with a decoder, and Error if the
/// positions of the model end before a text does.
ALIBI_API Tensor embed(const LanguageModel& model, std::span<const std::string> texts,
                       const EmbedOptions& options = {});
/// The same for texts that are already encoded. max_tokens is not used.
ALIBI_API Tensor embed_inputs(const LanguageModel& model, std::span<const EncoderInput> inputs,
                              const EmbedOptions& options = {});

/// Tokens [begin, end) of an input.
struct TokenSpan {
  int64_t begin = 0, end = 0;
};
/// An input whose text consists of parts, such as the lines of a document.
struct ChunkedInput {
  EncoderInput input;
  std::vector<TokenSpan> spans;  ///< tokens of each part, for embed_spans(); empty for a part without tokens
};
/// Encodes each part on its own and joins them to one text, with the special tokens of encoder_input() around it.
ALIBI_API ChunkedInput chunked_input(const LanguageModel& model, std::span<const std::string> parts);

/// Late chunking: float32 [spans, d_model], the vector of each span of one input, whose states have seen the whole
/// input. Spans may overlap. Throws UsageError for an empty span and for one outside of the input.
ALIBI_API Tensor embed_spans(const LanguageModel& model, const EncoderInput& input, std::span<const TokenSpan> spans,
                             const EmbedOptions& options = {});

}  // namespace alibi
