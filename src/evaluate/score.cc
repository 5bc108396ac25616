#include "alibi/score.h"

#include <algorithm>

#include "core/check.h"
#include "evaluate/checks.h"
#include "model/position.h"

namespace alibi {
namespace {

/// Maximum number of positions in a cache: two weeks at a thousand tokens per second.
constexpr int64_t endless = int64_t{1} << 30;

int64_t length_of(const LanguageModel& model, const ScoreOptions& options) {
  const LanguageModelConfig& config = model.config();
  check_usage(options.context_length >= 0, "[score] the length is {}, expected at least 0", options.context_length);
  const int64_t trained = config.train_length > 0 ? config.train_length : 128;
  const int64_t unlimited = options.context.evicts() ? endless : trained;
  const int64_t length = options.context_length > 0 ? options.context_length : unlimited;
  const std::optional<int64_t> end = model::end_of_positions(config.transformer);
  check_usage(!end || length <= *end, "[score] {} positions end at {}, but the length is {}; choose a shorter length",
              name_of(config.transformer.position), end.value_or(0), length);
  return length;
}

/// Maximum number of tokens of an endless context that are repeated at the start of the next context.
constexpr size_t max_read_again = 1 << 16;

Tensor as_ids(std::vector<int32_t>& ids) {
  return Tensor::view(ids.data(), {1, static_cast<int64_t>(ids.size())}, DType::int32);
}

}  // namespace

Scorer::Scorer(const LanguageModel& model, const ScoreOptions& options)
    : model_(model),
      length_(length_of(model, options)),
      context_(model, options.context),
      last_(model.tokenizer().end_of_text()) {}

void Scorer::begin_again() {
  const auto keep = std::min(length_ / 2, static_cast<int64_t>(read_.size()));
  read_.erase(read_.begin(), read_.end() - keep);
  context_.rewind(0);
  if (keep > 0) model_.next_logits(as_ids(read_), context_);
}

std::vector<float> Scorer::score(std::span<const int32_t> tokens) {
  std::vector<float> result;
  result.reserve(tokens.size());
  while (!tokens.empty()) {
    if (context_.position() == length_) begin_again();
    const auto room = static_cast<size_t>(length_ - context_.position());
    const std::span<const int32_t> part = tokens.first(std::min(room, tokens.size()));
    std::vector<int32_t> ids{last_};
    ids.insert(ids.end(), part.begin(), part.end() - 1);
    const Tensor targets = Tensor::from(part, {1, static_cast<int64_t>(part.size())});
    const std::vector<float> nll = model_.nll(as_ids(ids), targets, context_);
    for (const float value : nll) {
      evaluation::check_finite("score", value, "loss of token", static_cast<int64_t>(result.size()));
      result.push_back(value);
    }
    read_.insert(read_.end(), ids.begin(), ids.end());
    if (length_ == endless && read_.size() > 2 * max_read_again) {
      read_.erase(read_.begin(), read_.end() - static_cast<int64_t>(max_read_again));
    }
    last_ = part.back();
    tokens = tokens.subspan(part.size());
  }
  return result;
}

}  // namespace alibi
