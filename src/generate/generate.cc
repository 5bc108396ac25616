#include "alibi/generate.h"

#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "core/check.h"
#include "core/memory.h"
#include "generate/sampling.h"
#include "generate/stop_strings.h"
#include "generate/utf8.h"

namespace alibi {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// A text that grows by tokens, and is shown as far as it is settled.
class GrowingText {
 public:
  GrowingText(const Tokenizer& tokenizer, int32_t before, const GenerateOptions& options)
      : tokenizer_(tokenizer), options_(options), stops_(options.stop), last_shown_(before) {}

  /// Returns why the text ends, if it does.
  std::optional<GenerationEnd> add(int32_t token) {
    // What the token adds may depend on the last one that stands for text: a space between words.
    const int32_t both[] = {last_shown_, token};
    const std::string added = tokenizer_.decode(both).substr(tokenizer_.decode(std::span(both).first(1)).size());
    if (!added.empty()) last_shown_ = token;
    const size_t known = text_.size();
    text_ += added;
    if (const std::optional<size_t> stop = stops_.find(text_, known)) {
      text_.resize(*stop);
      return GenerationEnd::stop;
    }
    const std::string_view settled = std::string_view(text_).substr(0, stops_.settled(text_));
    if (settled.size() > shown_) show_up_to(whole_characters(settled, shown_));
    return listens_ ? std::nullopt : std::optional(GenerationEnd::callback);
  }

  /// What was held back, for nothing will follow.
  void show_rest() { show_up_to(text_.size()); }

  std::string take() { return std::move(text_); }

 private:
  void show_up_to(size_t end) {
    if (!options_.on_text || !listens_ || end <= shown_) return;
    const size_t begin = std::exchange(shown_, end);
    listens_ = options_.on_text(std::string_view(text_).substr(begin, end - begin));
  }

  const Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  StopStrings stops_;
  std::string text_;
  size_t shown_ = 0;
  bool listens_ = true;  // on_text wants more
  int32_t last_shown_;
};

}  // namespace

double Generation::tokens_per_second() const { return static_cast<double>(tokens) / seconds; }

/// The text so far, and the logits of the token after it.
struct [[gnu::visibility("hidden")]] Prompt::Reading {
  const LanguageModel& model;
  std::vector<int32_t> ids;
  std::optional<Context> context;  // absent: the model lies elsewhere, and computes all of ids each time
  std::vector<float> logits = {};
  double seconds = 0;

  void read(std::span<const int32_t> more) {
    const size_t known = ids.size();
    ids.insert(ids.end(), more.begin(), more.end());
    const auto from = [&](size_t first) {
      return Tensor::view(&ids[first], {1, static_cast<int64_t>(ids.size() - first)}, DType::int32);
    };
    logits = (context ? model.next_logits(from(known), *context) : model.next_logits(from(0))).to_floats();
  }

  Reading fork() const {
    return {model, ids, context ? std::optional(context->fork()) : std::nullopt, logits, seconds};
  }

  Generation go_on(const GenerateOptions& options, int64_t sample);
};

Prompt::Prompt(const LanguageModel& model, std::string_view text, const ContextOptions& context)
    : reading_(new Reading{model, {}, {}}) {
  check(model.config().transformer.causal, "[generate] the model is an encoder; generation needs a causal transformer");
  const auto start = std::chrono::steady_clock::now();
  if (model.device() == Device::cpu) reading_->context.emplace(model, context);
  check_usage(reading_->context || !context.releases(),
              "[generate] the model lies on {}: it computes the text anew for each token, and has no keys to release",
              name_of(model.device()));
  std::vector<int32_t> ids = model.tokenizer().encode(text);
  ids.insert(ids.begin(), model.tokenizer().end_of_text());
  reading_->read(ids);
  reading_->seconds = seconds_since(start);
}
Prompt::~Prompt() = default;
Prompt::Prompt(Prompt&&) noexcept = default;
Prompt& Prompt::operator=(Prompt&&) noexcept = default;

int64_t Prompt::tokens() const { return static_cast<int64_t>(reading_->ids.size()); }
double Prompt::seconds() const { return reading_->seconds; }
int64_t Prompt::bytes() const { return reading_->context ? reading_->context->bytes() : 0; }

Generation Prompt::go_on(const GenerateOptions& options, int64_t sample) const& {
  check_options(options);
  return reading_->fork().go_on(options, sample);
}

Generation Prompt::go_on(const GenerateOptions& options, int64_t sample) && { return reading_->go_on(options, sample); }

Generation Prompt::Reading::go_on(const GenerateOptions& options, int64_t sample) {
  check_options(options);
  const Tokenizer& words = model.tokenizer();
  const int32_t end_of_text = words.end_of_text();
  const bool stops = options.stop_at_end_of_text && !words.end_of_text_ends_lines();
  const int32_t never = stops || words.end_of_text_ends_lines() ? -1 : end_of_text;
  const bool penalizes = options.repetition_penalty != 1;
  std::vector<bool> seen;
  if (penalizes) {
    seen.resize(logits.size());
    for (const int32_t id : std::span(ids).subspan(1)) seen[static_cast<size_t>(id)] = true;
  }
  const Random random(options.seed, mix(0x9e4e, static_cast<uint64_t>(sample)));
  GrowingText text(words, ids.back(), options);
  Generation result;
  const auto start = std::chrono::steady_clock::now();
  const KeepMemory keep;
  std::optional<GenerationEnd> end;
  for (int32_t token = 0; !end && result.tokens < options.max_tokens; ++result.tokens) {
    if (result.tokens > 0) read(std::span(&token, 1));
    if (penalizes) logits = penalized(logits, seen, options.repetition_penalty);
    token = sample_token(logits, options, random, static_cast<uint64_t>(result.tokens), never);
    if (penalizes) seen[static_cast<size_t>(token)] = true;
    const bool goes_on = !options.on_token || options.on_token(token);
    end = token == end_of_text && stops ? GenerationEnd::end_of_text : text.add(token);
    if (!end && !goes_on) end = GenerationEnd::callback;
  }
  result.end = end.value_or(GenerationEnd::tokens);
  text.show_rest();
  result.text = text.take();
  result.seconds = seconds_since(start);
  if (context) {
    result.cache_bytes = context->bytes();
    result.certificate = context->certificate();
  }
  return result;
}

std::string LanguageModel::generate(std::string_view prompt, const GenerateOptions& options) const {
  check_options(options);
  return Prompt(*this, prompt).go_on(options).text;
}

}  // namespace alibi
