#include "alibi/generate.h"

#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "core/check.h"
#include "core/memory.h"
#include "generate/growing_text.h"
#include "generate/sampling.h"

namespace alibi {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

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
  static void read_together(std::span<Reading* const> readings, std::span<const int32_t> tokens);
};

Prompt::Prompt(std::unique_ptr<Reading> reading) : reading_(std::move(reading)) {}

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

/// One text that grows by a token at a time.
class [[gnu::visibility("hidden")]] Prompt::Writing {
 public:
  Writing(Reading & reading, const GenerateOptions& options, int64_t sample)
      : reading_(reading),
        options_(options),
        random_(options.seed, mix(0x9e4e, static_cast<uint64_t>(sample))),
        text_(reading.model.tokenizer(), reading.ids.back(), options_) {
    const Tokenizer& words = reading.model.tokenizer();
    end_of_text_ = words.end_of_text();
    stops_ = options_.stop_at_end_of_text && !words.end_of_text_ends_lines();
    never_ = stops_ || words.end_of_text_ends_lines() ? -1 : end_of_text_;
    if (options_.repetition_penalty == 1) return;
    seen_.resize(reading_.logits.size());
    for (const int32_t id : std::span(reading_.ids).subspan(1)) seen_[static_cast<size_t>(id)] = true;
  }

  bool goes_on() const { return !end_ && result_.tokens < options_.max_tokens; }

  /// The next token, from the logits of what was read.
  int32_t draw() {
    std::vector<float>& logits = reading_.logits;
    check_logits(logits);
    if (!seen_.empty()) logits = penalized(logits, seen_, options_.repetition_penalty);
    const int32_t token = sample_token(logits, options_, random_, static_cast<uint64_t>(result_.tokens), never_);
    ++result_.tokens;
    if (!seen_.empty()) seen_[static_cast<size_t>(token)] = true;
    const bool wanted = !options_.on_token || options_.on_token(token);
    end_ = token == end_of_text_ && stops_ ? GenerationEnd::end_of_text : text_.add(token);
    if (!end_ && !wanted) end_ = GenerationEnd::callback;
    result_.seconds = seconds_since(start_);
    return token;
  }

  Generation finish()&& {
    result_.end = end_.value_or(GenerationEnd::tokens);
    text_.show_rest();
    result_.text = text_.take();
    if (reading_.context) {
      result_.cache_bytes = reading_.context->bytes();
      result_.shared_bytes = reading_.context->shared_bytes();
      result_.certificate = reading_.context->certificate();
    }
    return std::move(result_);
  }

 private:
  Reading& reading_;
  const GenerateOptions& options_;
  Random random_;
  GrowingText text_;
  int32_t end_of_text_ = 0, never_ = -1;
  bool stops_ = false;
  std::vector<bool> seen_;  // empty: repetitions cost nothing
  std::optional<GenerationEnd> end_;
  Generation result_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Generation Prompt::Reading::go_on(const GenerateOptions& options, int64_t sample) {
  check_options(options);
  const KeepMemory keep;
  Writing writing(*this, options, sample);
  while (writing.goes_on()) {
    const int32_t token = writing.draw();
    if (writing.goes_on()) read(std::span(&token, 1));
  }
  return std::move(writing).finish();
}

/// One token of each of several texts, which are then read at once.
void Prompt::Reading::read_together(std::span<Reading* const> readings, std::span<const int32_t> tokens) {
  const auto batch = static_cast<int64_t>(readings.size());
  std::vector<Context*> contexts;
  for (size_t i = 0; i < readings.size(); ++i) {
    readings[i]->ids.push_back(tokens[i]);
    contexts.push_back(&*readings[i]->context);
  }
  const LanguageModel& model = readings.front()->model;
  const Tensor logits = model.next_logits(Tensor::from(tokens, {batch, 1}), contexts);
  for (int64_t i = 0; i < batch; ++i) {
    readings[static_cast<size_t>(i)]->logits = logits.slice(0, i, i + 1).to_floats();
  }
}

std::vector<Generation> Prompt::go_on_together(std::vector<Prompt> prompts, const std::vector<GenerateOptions>& options,
                                               int64_t first_sample) {
  check_usage(options.size() == 1 || options.size() == prompts.size(),
              "[generate] {} options for {} prompts, expected one for each or one for all", options.size(),
              prompts.size());
  for (const GenerateOptions& each : options) check_options(each);
  std::vector<Generation> results(prompts.size());
  std::vector<std::optional<Writing>> writings;
  writings.reserve(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    Reading& reading = *prompts[i].reading_;
    check_usage(&reading.model == &prompts.front().reading_->model,
                "[generate] the prompts were read by different models, expected one");
    check_usage(reading.context.has_value(), "[generate] the model lies on {}, where texts are written one by one",
                name_of(reading.model.device()));
    writings.emplace_back(std::in_place, reading, options.size() == 1 ? options.front() : options[i],
                          first_sample + static_cast<int64_t>(i));
  }
  const KeepMemory keep;
  while (true) {
    std::vector<Reading*> readings;
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < prompts.size(); ++i) {
      if (!writings[i]) continue;
      const std::optional<int32_t> token = writings[i]->goes_on() ? std::optional(writings[i]->draw()) : std::nullopt;
      if (writings[i]->goes_on()) {
        readings.push_back(prompts[i].reading_.get());
        tokens.push_back(*token);
      } else {  // the others need its memory
        results[i] = std::move(*writings[i]).finish();
        writings[i].reset();
        prompts[i].reading_->context.reset();
      }
    }
    if (readings.empty()) return results;
    Reading::read_together(readings, tokens);
  }
}

Prompt Prompt::fork() const { return Prompt(std::make_unique<Reading>(reading_->fork())); }

std::string LanguageModel::generate(std::string_view prompt, const GenerateOptions& options) const {
  check_options(options);
  return Prompt(*this, prompt).go_on(options).text;
}

}  // namespace alibi
