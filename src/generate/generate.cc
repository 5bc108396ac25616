#include "alibi/generate.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/memory.h"
#include "generate/generation_loop.h"
#include "generate/sampling.h"

namespace alibi {
namespace {

/// A prompt that a context has read, and the sample to generate after it.
struct ReadPrompt {
  std::vector<int32_t> prompt;
  Context context;
  std::vector<float> logits;  // of the first token
  int64_t sample = 0;         // number of the sample
};

/// Generates the texts together on the calling thread. `options` holds one entry per text, or one for all.
std::vector<EngineSample> generate_after(const LanguageModel& model, std::vector<ReadPrompt> prompts,
                                         std::span<const GenerateOptions> options, bool has_text = true) {
  const core::KeepMemory keep;
  generation::GenerationLoop loop(model, {.prefix_bytes = 0}, false);
  std::vector<std::shared_ptr<generation::RequestState>> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto& request = requests.emplace_back(std::make_shared<generation::RequestState>());
    request->request.prompt = std::move(prompts[i].prompt);
    request->request.options = options[options.size() == 1 ? 0 : i];
    loop.add({.shared = request,
              .context = std::move(prompts[i].context),
              .first_sample = prompts[i].sample,
              .has_text = has_text},
             prompts[i].logits);
  }
  while (loop.has_jobs()) loop.step();
  std::vector<EngineSample> samples;
  for (const auto& request : requests) samples.push_back(std::move(request->result.samples.front()));
  return samples;
}

}  // namespace

double Generation::tokens_per_second() const { return static_cast<double>(tokens) / seconds; }

/// The text so far, and the logits of its next token.
struct [[gnu::visibility("hidden")]] Prompt::Session {
  const LanguageModel& model;
  std::vector<int32_t> ids;
  Context context;
  std::vector<float> logits = {};
  double seconds = 0;

  Session fork() const { return {model, ids, context.fork(), logits, seconds}; }

  Generation generate(const GenerateOptions& options, int64_t sample) {
    generation::check_options(options, model.config().vocab_size);
    std::vector<ReadPrompt> read;
    read.push_back({std::move(ids), std::move(context), std::move(logits), sample});
    return std::move(generate_after(model, std::move(read), {&options, 1}).front().generation);
  }
};

Prompt::Prompt(std::unique_ptr<Session> session) : session_(std::move(session)) {}

Prompt::Prompt(const LanguageModel& model, std::string_view text, const ContextOptions& context) {
  check(model.config().transformer.attention.causal,
        "[generate] the model is an encoder, expected a causal transformer, which can generate text");
  const auto start = core::Clock::now();
  session_.reset(new Session{model, model.tokenizer().encode_prompt(text), Context(model, context)});
  const std::vector<int32_t>& ids = session_->ids;
  session_->logits = model.next_logits(Tensor::from(ids, {1, std::ssize(ids)}), session_->context).to_floats();
  session_->seconds = core::seconds_since(start);
}
Prompt::~Prompt() = default;
Prompt::Prompt(Prompt&&) noexcept = default;
Prompt& Prompt::operator=(Prompt&&) noexcept = default;

int64_t Prompt::tokens() const { return static_cast<int64_t>(session_->ids.size()); }
double Prompt::seconds() const { return session_->seconds; }
int64_t Prompt::bytes() const { return session_->context.bytes(); }

Generation Prompt::generate(const GenerateOptions& options, int64_t sample) const& {
  generation::check_options(options, session_->model.config().vocab_size);
  return session_->fork().generate(options, sample);
}

Generation Prompt::generate(const GenerateOptions& options, int64_t sample) && {
  return session_->generate(options, sample);
}

std::vector<Generation> Prompt::generate_batch(std::vector<Prompt> prompts, const std::vector<GenerateOptions>& options,
                                               int64_t first_sample) {
  check_usage(options.size() == 1 || options.size() == prompts.size(),
              "[generate] {} options were given for {} prompts, expected one per prompt or one for all", options.size(),
              prompts.size());
  std::vector<Generation> results;
  if (prompts.empty()) return results;
  const LanguageModel& model = prompts.front().session_->model;
  for (const GenerateOptions& each : options) generation::check_options(each, model.config().vocab_size);
  std::vector<ReadPrompt> read;
  for (Prompt& prompt : prompts) {
    auto& [read_by, ids, context, logits, seconds] = *prompt.session_;
    check_usage(&read_by == &model, "[generate] the prompts were read by different models, expected a single model");
    read.push_back({std::move(ids), std::move(context), std::move(logits), first_sample + std::ssize(read)});
  }
  for (EngineSample& sample : generate_after(model, std::move(read), options)) {
    results.push_back(std::move(sample.generation));
  }
  return results;
}

Prompt Prompt::fork() const { return Prompt(std::make_unique<Session>(session_->fork())); }

std::string LanguageModel::generate(std::string_view prompt, const GenerateOptions& options) const {
  generation::check_options(options, config().vocab_size);
  return Prompt(*this, prompt).generate(options).text;
}

std::vector<int32_t> LanguageModel::generate_ids(std::span<const int32_t> prompt,
                                                 const GenerateOptions& options) const {
  generation::check_options(options, config().vocab_size);
  check_usage(!prompt.empty(), "[generate] the prompt has no tokens, expected at least one");
  Context context(*this);
  // Throws if an id is unknown.
  std::vector<float> logits = next_logits(Tensor::from(prompt, {1, std::ssize(prompt)}), context).to_floats();
  std::vector<ReadPrompt> read;
  read.push_back({{prompt.begin(), prompt.end()}, std::move(context), std::move(logits)});
  const EngineSample sample = std::move(generate_after(*this, std::move(read), {&options, 1}, false).front());
  std::vector<int32_t> ids;
  for (const EngineToken& token : sample.tokens) ids.push_back(token.id);
  return ids;
}

}  // namespace alibi
