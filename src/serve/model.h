// A model that is served: its engine, its tokenizer's view of texts, and a thread for vectors and scores.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "alibi/embed.h"
#include "alibi/encoder_model.h"
#include "alibi/engine.h"
#include "alibi/language_model.h"
#include "serve/fields.h"
#include "serve/worker.h"

namespace alibi::serve {

struct ServedModelOptions {
  EngineOptions engine = {};
  Pooling pooling = Pooling::mean;
  std::string chat_template = {};   ///< by name; empty: the one that the model's files ask for
  int64_t waiting_embeddings = 64;  ///< maximum number of requests for vectors or scores that wait
};

class ServedModel {
 public:
  ServedModel(std::string name, LanguageModel model, const ServedModelOptions& options);

  const std::string& name() const { return name_; }
  const LanguageModel& model() const { return model_; }
  int64_t created() const { return created_; }
  const std::string& chat_template() const { return options_.chat_template; }
  Pooling pooling() const { return options_.pooling; }
  /// Throws ApiError if the model is an encoder.
  Engine& engine() const;
  bool generates() const { return engine_ != nullptr; }
  /// Throws ApiError if the model is no reranker.
  const EncoderModel& reranker() const;
  bool reranks() const { return reranker_.has_value(); }
  /// Throws ApiError if the model has no tokenizer.
  const Tokenizer& tokenizer() const;
  /// Maximum number of tokens of a text; absent if there is no limit.
  std::optional<int64_t> max_tokens() const;

  /// Runs work on the thread for vectors and scores. Throws ApiError if too much is waiting.
  void compute(std::function<void()> work) const;

  /// The tokens that the model reads for an input. Throws ApiError with the field's name if they are out of range.
  std::vector<int32_t> prompt(const TextInput& input, const std::string& field) const;
  /// The text of tokens; empty without a tokenizer.
  std::string text_of(const std::vector<int32_t>& ids) const;
  /// What a token adds to the text after the token before it (-1: none), as bytes.
  std::string piece(int32_t before, int32_t id) const;
  /// The end-of-text token and its name.
  std::optional<int32_t> end_of_text() const;
  std::optional<std::string> end_of_text_name() const;

 private:
  std::string name_;
  LanguageModel model_;
  ServedModelOptions options_;
  int64_t created_;
  std::optional<EncoderModel> reranker_;
  std::unique_ptr<Engine> engine_;  // null for encoders
  mutable Worker worker_;
};

}  // namespace alibi::serve
