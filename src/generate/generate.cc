#include "alibi/generate.h"

#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "core/check.h"
#include "core/memory.h"
#include "generate/drawn_text.h"
#include "generate/sampling.h"

namespace alibi {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
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

  void read(std::span<const int32_t> more) {
    const size_t known = ids.size();
    ids.insert(ids.end(), more.begin(), more.end());
    const Tensor next = Tensor::view(&ids[known], {1, static_cast<int64_t>(more.size())}, DType::int32);
    logits = model.next_logits(next, context).to_floats();
  }

  Session fork() const { return {model, ids, context.fork(), logits, seconds}; }

  Generation generate(const GenerateOptions& options, int64_t sample);
  static void read_together(std::span<Session* const> sessions, std::span<const int32_t> tokens);
};

Prompt::Prompt(std::unique_ptr<Session> session) : session_(std::move(session)) {}

Prompt::Prompt(const LanguageModel& model, std::string_view text, const ContextOptions& context) {
  check(model.config().transformer.attention.causal,
        "[generate] the model is an encoder, expected a causal transformer, which can generate text");
  const auto start = std::chrono::steady_clock::now();
  session_.reset(new Session{model, {}, Context(model, context)});
  session_->read(model.tokenizer().encode_prompt(text));
  session_->seconds = seconds_since(start);
}
Prompt::~Prompt() = default;
Prompt::Prompt(Prompt&&) noexcept = default;
Prompt& Prompt::operator=(Prompt&&) noexcept = default;

int64_t Prompt::tokens() const { return static_cast<int64_t>(session_->ids.size()); }
double Prompt::seconds() const { return session_->seconds; }
int64_t Prompt::bytes() const { return session_->context.bytes(); }

Generation Prompt::generate(const GenerateOptions& options, int64_t sample) const& {
  generation::check_options(options);
  return session_->fork().generate(options, sample);
}

Generation Prompt::generate(const GenerateOptions& options, int64_t sample) && {
  return session_->generate(options, sample);
}

/// One text that grows by one token at a time.
class [[gnu::visibility("hidden")]] Prompt::Request {
 public:
  Request(Session & session, const GenerateOptions& options, int64_t sample)
      : session_(session), text_(session.model, session.ids, options, sample) {
    session.model.tokenizer();  // throws if there is none
  }

  bool goes_on() const { return text_.goes_on(); }

  /// Draws the next token from the logits of the text so far.
  int32_t draw() {
    const int32_t token = text_.draw(session_.logits);
    result_.seconds = seconds_since(start_);
    return token;
  }

  Generation finish()&& {
    result_.tokens = text_.tokens();
    result_.end = text_.end();
    result_.text = text_.take();
    result_.cache_bytes = session_.context.bytes();
    result_.shared_bytes = session_.context.shared_bytes();
    result_.certificate = session_.context.certificate();
    return std::move(result_);
  }

 private:
  Session& session_;
  generation::DrawnText text_;
  Generation result_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Generation Prompt::Session::generate(const GenerateOptions& options, int64_t sample) {
  generation::check_options(options);
  const core::KeepMemory keep;
  Request request(*this, options, sample);
  while (request.goes_on()) {
    const int32_t token = request.draw();
    if (request.goes_on()) read(std::span(&token, 1));
  }
  return std::move(request).finish();
}

/// Appends one token to each of several texts and reads them in one pass.
void Prompt::Session::read_together(std::span<Session* const> sessions, std::span<const int32_t> tokens) {
  const auto batch = static_cast<int64_t>(sessions.size());
  std::vector<Context*> contexts;
  for (size_t i = 0; i < sessions.size(); ++i) {
    sessions[i]->ids.push_back(tokens[i]);
    contexts.push_back(&sessions[i]->context);
  }
  const LanguageModel& model = sessions.front()->model;
  const Tensor logits = model.next_logits(Tensor::from(tokens, {batch, 1}), contexts);
  for (int64_t i = 0; i < batch; ++i) {
    sessions[static_cast<size_t>(i)]->logits = logits.slice(0, i, i + 1).to_floats();
  }
}

std::vector<Generation> Prompt::generate_batch(std::vector<Prompt> prompts, const std::vector<GenerateOptions>& options,
                                               int64_t first_sample) {
  check_usage(options.size() == 1 || options.size() == prompts.size(),
              "[generate] {} options were given for {} prompts, expected one per prompt or one for all", options.size(),
              prompts.size());
  for (const GenerateOptions& each : options) generation::check_options(each);
  std::vector<Generation> results(prompts.size());
  std::vector<std::optional<Request>> requests;
  requests.reserve(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    Session& session = *prompts[i].session_;
    check_usage(&session.model == &prompts.front().session_->model,
                "[generate] the prompts were read by different models, expected a single model");
    requests.emplace_back(std::in_place, session, options.size() == 1 ? options.front() : options[i],
                          first_sample + static_cast<int64_t>(i));
  }
  const core::KeepMemory keep;
  while (true) {
    std::vector<Session*> sessions;
    std::vector<int32_t> tokens;
    for (size_t i = 0; i < prompts.size(); ++i) {
      if (!requests[i]) continue;
      int32_t token = -1;
      if (requests[i]->goes_on()) token = requests[i]->draw();
      if (requests[i]->goes_on()) {
        sessions.push_back(prompts[i].session_.get());
        tokens.push_back(token);
      } else {  // frees its memory for the other texts
        results[i] = std::move(*requests[i]).finish();
        requests[i].reset();
        prompts[i].session_.reset();
      }
    }
    if (sessions.empty()) return results;
    Session::read_together(sessions, tokens);
  }
}

Prompt Prompt::fork() const { return Prompt(std::make_unique<Session>(session_->fork())); }

std::string LanguageModel::generate(std::string_view prompt, const GenerateOptions& options) const {
  generation::check_options(options);
  return Prompt(*this, prompt).generate(options).text;
}

}  // namespace alibi
