// An encoder: token states, vectors and scores of texts. Jina embeddings v2, jina-reranker-v1, MosaicBERT, DNABERT-2
// (docs/reference/families.md), and encoders that this library trained.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/embed.h"
#include "alibi/export.h"
#include "alibi/language_model.h"

namespace alibi {

class ALIBI_API EncoderModel {
 public:
  /// Throws UsageError for a decoder.
  explicit EncoderModel(LanguageModel model);
  /// Reads a folder or a GGUF file, as LanguageModel::load() does.
  static EncoderModel load(const std::filesystem::path& path);

  const LanguageModel& model() const { return model_; }
  /// For set_precision() and to().
  LanguageModel& model() { return model_; }
  /// Number of outputs of the classifier; 0: the model has none.
  int labels() const { return model_.config().transformer.head.labels; }

  /// A text, or two texts for a classifier, as the model reads them. See encoder_input().
  EncoderInput encode(std::string_view text, int64_t max_tokens = 0) const;
  /// max_tokens > 0: the second text is cut. Throws UsageError if the first one leaves no room for it.
  EncoderInput encode_pair(std::string_view first, std::string_view second, int64_t max_tokens = 0) const;

  /// Calls use(index, states) with the final hidden states [tokens, d_model], float32, of each input. Inputs of any
  /// lengths are computed together without padding, shortest first, with at most batch_tokens tokens at a time. States
  /// are the same as those of the input alone except for the rounding of products of other sizes. The tensor is valid
  /// only during the call. Throws Error that names the input if ids or token types are out of range.
  void hidden(std::span<const EncoderInput> inputs, const std::function<void(int64_t index, const Tensor& states)>& use,
              int64_t batch_tokens = 4096) const;
  /// The states of one input.
  Tensor hidden(const EncoderInput& input) const;

  /// float32 [inputs, d_model]
  Tensor embed_inputs(std::span<const EncoderInput> inputs, const EmbedOptions& options = {}) const;
  Tensor embed(std::span<const std::string> texts, const EmbedOptions& options = {}) const;

  /// The outputs of the classifier: float32 [inputs, labels]. Throws Error if the model has none.
  Tensor logits(std::span<const EncoderInput> inputs, int64_t batch_tokens = 4096) const;
  /// Relevance of each document for the query: the sigmoid of a reranker's output. Documents are cut so that query and
  /// document together have at most max_tokens tokens; 0: never. Throws Error if the model is not a classifier with one
  /// output.
  std::vector<double> rerank(std::string_view query, std::span<const std::string> documents,
                             int64_t max_tokens = 0) const;

 private:
  LanguageModel model_;
};

}  // namespace alibi
