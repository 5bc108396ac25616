#include "serve/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "generate/generated_text.h"
#include "model/position.h"

namespace alibi::serve {

ServedModel::ServedModel(std::string name, LanguageModel model, const ServedModelOptions& options)
    : name_(std::move(name)),
      model_(std::move(model)),
      options_(options),
      created_(static_cast<int64_t>(std::time(nullptr))),
      vectors_(options.engine.slots, options.engine.queue) {
  const TransformerConfig& config = model_.config().transformer;
  if (config.attention.causal) {
    engine_ = std::make_unique<Engine>(model_, options.engine);
  } else if (config.head.labels == 1) {
    reranker_.emplace(model_.sharing_weights([](LanguageModelConfig&) {}));
  }
}

Engine& ServedModel::engine() const {
  if (!engine_) {
    throw ApiError{400, fmt::format("the model {} is an encoder, which generates no text; use /v1/embeddings", name_),
                   "model"};
  }
  return *engine_;
}

const EncoderModel& ServedModel::reranker() const {
  if (!reranker_) throw ApiError{400, fmt::format("the model {} is no reranker", name_), "model"};
  return *reranker_;
}

const Tokenizer& ServedModel::tokenizer() const {
  if (!model_.has_tokenizer()) {
    throw ApiError{400, fmt::format("the model {} has no tokenizer; send tokens in place of texts", name_)};
  }
  return model_.tokenizer();
}

std::optional<int64_t> ServedModel::positions() const { return model::end_of_positions(model_.config().transformer); }

std::optional<int64_t> ServedModel::max_tokens() const {
  if (options_.engine.max_tokens == 0) return positions();
  return std::min(options_.engine.max_tokens, positions().value_or(options_.engine.max_tokens));
}

std::vector<int32_t> ServedModel::prompt(const TextInput& input, const std::string& field) const {
  if (input.text) return tokenizer().encode_prompt(*input.text);
  const int vocab = model_.config().vocab_size;
  if (input.ids.empty()) throw ApiError{400, field + " has no tokens, expected at least one", field};
  for (const int32_t id : input.ids) {
    if (id < 0 || id >= vocab)
      throw ApiError{400, fmt::format("{} has the token {}, expected 0 to {}", field, id, vocab - 1), field};
  }
  return input.ids;
}

std::string ServedModel::text_of(const std::vector<int32_t>& ids) const {
  return model_.has_tokenizer() ? model_.tokenizer().decode(ids) : "";
}

std::optional<int32_t> ServedModel::end_of_text() const { return generation::end_of_text(model_); }

std::optional<std::string> ServedModel::end_of_text_name() const {
  const std::optional<int32_t> id = end_of_text();
  if (!id) return std::nullopt;
  std::string name = model_.tokenizer().decode(std::span(&*id, 1), DecodeOptions{.skip_special_tokens = false});
  return name.empty() ? "<|endoftext|>" : name;  // the name in the files of tokenizers that this library makes
}

TokenPieces::TokenPieces(const ServedModel& model, std::span<const int32_t> before) {
  if (!model.model().has_tokenizer()) return;
  const Tokenizer& tokenizer = model.tokenizer();
  decoder_.emplace(tokenizer, before);
  if (tokenizer.end_of_text_ends_lines()) return;
  end_of_text_ = model.end_of_text();
  end_name_ = model.end_of_text_name().value_or("");
}

std::string TokenPieces::peek(int32_t id) const {
  if (!decoder_) return fmt::format("<{}>", id);
  return id == end_of_text_ ? end_name_ : decoder_->peek(id);
}

std::string TokenPieces::add(int32_t id) { return decoder_ && id != end_of_text_ ? decoder_->add(id) : ""; }

}  // namespace alibi::serve
