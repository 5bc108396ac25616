#include "generate/drawn_text.h"

#include "core/check.h"
#include "generate/sampling.h"

namespace alibi::generation {

std::optional<int32_t> end_of_text(const LanguageModel& model) {
  if (!model.has_tokenizer()) return std::nullopt;
  try {
    return model.tokenizer().end_of_text();
  } catch (const Error&) {
    return std::nullopt;
  }
}

DrawnText::DrawnText(const LanguageModel& model, std::span<const int32_t> prompt, const GenerateOptions& options,
                     int64_t sample)
    : options_(options), random_(options.seed, core::mix(0x9e4e, static_cast<uint64_t>(sample))) {
  if (model.has_tokenizer()) {
    const Tokenizer& tokenizer = model.tokenizer();
    text_.emplace(tokenizer, prompt, options);
    end_of_text_ = generation::end_of_text(model).value_or(-1);
    stops_ = options.stop_at_end_of_text && !tokenizer.end_of_text_ends_lines();
    never_ = stops_ || tokenizer.end_of_text_ends_lines() ? -1 : end_of_text_;
  }
  if (options.repetition_penalty == 1) return;
  seen_.resize(static_cast<size_t>(model.config().vocab_size));
  const size_t begins = prompt.front() == end_of_text_ ? 1 : 0;
  for (const int32_t id : prompt.subspan(begins)) seen_[static_cast<size_t>(id)] = true;
}

int32_t DrawnText::draw(std::vector<float> logits) {
  check_logits(logits);
  if (!seen_.empty()) logits = penalized(logits, seen_, options_.repetition_penalty);
  const int32_t token = sample_token(logits, options_, random_, static_cast<uint64_t>(tokens_), never_);
  ++tokens_;
  if (!seen_.empty()) seen_[static_cast<size_t>(token)] = true;
  const bool wanted = !options_.on_token || options_.on_token(token);
  if (token == end_of_text_ && stops_) {
    end_ = GenerationEnd::end_of_text;
  } else if (text_) {
    end_ = text_->add(token);
  }
  if (!end_ && !wanted) end_ = GenerationEnd::callback;
  return token;
}

int64_t DrawnText::tokens_in_text() const {
  if (!text_) return tokens_;
  if (goes_on() || end_ == GenerationEnd::stop) return text_->settled_tokens();
  return end_ == GenerationEnd::end_of_text ? tokens_ - 1 : tokens_;
}

std::string DrawnText::take() {
  if (!text_) return {};
  text_->show_rest();
  return text_->take();
}

}  // namespace alibi::generation
