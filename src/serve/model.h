// A model that is served: its engine, its tokenizer's view of texts, and its queue of vectors and scores.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "alibi/embed.h"
#include "alibi/encoder_model.h"
#include "alibi/engine.h"
#include "alibi/language_model.h"
#include "generate/generated_text.h"
#include "serve/fields.h"
#include "serve/vector_queue.h"

namespace alibi::serve {

struct ServedModelOptions {
  EngineOptions engine = {};  ///< slots, queue and max_tokens are also those of vectors and scores
  Pooling pooling = Pooling::mean;
  std::string chat_template = {};  ///< by name; empty: the one that the model's files ask for
};

class ServedModel {
 public:
  ServedModel(std::string name, LanguageModel model, const ServedModelOptions& options);

  const std::string& name() const { return name_; }
  const LanguageModel& model() const { return model_; }
  int64_t created() const { return created_; }
  const std::string& chat_template() const { return options_.chat_template; }
  Pooling pooling() const { return options_.pooling; }
  int64_t slots() const { return options_.engine.slots; }
  int64_t queue() const { return options_.engine.queue; }
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
  /// Number of the model's positions; absent if they do not end.
  std::optional<int64_t> positions() const;
  /// Requests for vectors and scores.
  VectorQueue& vectors() const { return vectors_; }

  /// The tokens that the model reads for an input. Throws ApiError with the field's name if they are out of range.
  std::vector<int32_t> prompt(const TextInput& input, const std::string& field) const;
  /// The text of tokens; empty without a tokenizer.
  std::string text_of(const std::vector<int32_t>& ids) const;
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
  mutable VectorQueue vectors_;     // the last member, because its threads use the others
};

/// The tokens of one text as lists of tokens show them.
class TokenPieces {
 public:
  /// Keeps a reference to the model. `before`: the tokens before the first one that is added.
  explicit TokenPieces(const ServedModel& model, std::span<const int32_t> before = {});

  /// The bytes that the token would add to the text, or the name of an end of text, or <id> without a tokenizer.
  std::string peek(int32_t id) const;
  /// Appends the token. Returns the bytes that it adds to the text: none for an end of text, or without a tokenizer.
  std::string add(int32_t id);

 private:
  std::optional<generation::IncrementalDecoder> decoder_;  // absent without a tokenizer
  std::optional<int32_t> end_of_text_;                     // absent if it has a text, such as a line feed
  std::string end_name_;
};

}  // namespace alibi::serve
