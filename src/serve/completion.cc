#include "serve/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <random>
#include <utility>

#include "core/clock.h"
#include "core/format.h"

namespace alibi::serve {
namespace {

uint64_t random_bits() {
  thread_local std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

const char* finish_reason(GenerationEnd end) {
  switch (end) {
    case GenerationEnd::tokens:
      return "length";
    case GenerationEnd::end_of_text:
    case GenerationEnd::stop:
      return "stop";
    case GenerationEnd::callback:
      return "cancelled";
  }
  return "";
}

/// Keeps the samples whose tokens have the highest mean log-probability, highest first.
void keep_most_likely(std::vector<EngineSample>& samples, int64_t count) {
  const auto mean = [](const EngineSample& sample) {
    double sum = 0;
    for (const EngineToken& token : sample.tokens) sum += static_cast<double>(token.logprob.value_or(0));
    return sum / static_cast<double>(std::max<size_t>(sample.tokens.size(), 1));
  };
  std::stable_sort(samples.begin(), samples.end(),
                   [&](const EngineSample& a, const EngineSample& b) { return mean(a) > mean(b); });
  samples.resize(static_cast<size_t>(count));
}

void send_all(Responder& responder, const std::vector<OrderedJson>& events) {
  for (const OrderedJson& event : events) responder.event(to_text(event));
}

}  // namespace

CompletionParameters parameters_of(const Fields& fields, const ServedModel& model) {
  CompletionParameters all;
  GenerateOptions& generate = all.generate;
  generate.temperature = fields.number("temperature", 0, 1000).value_or(1);
  generate.top_p = fields.number("top_p", 1e-9, 1).value_or(1);
  generate.top_k = static_cast<int>(fields.integer("top_k", -1, INT32_MAX).value_or(0));
  if (generate.top_k == -1) generate.top_k = 0;  // as other servers say that there is no limit
  generate.min_p = fields.number("min_p", 0, 1).value_or(0);
  generate.repetition_penalty = fields.number("repetition_penalty", 1e-6, 1e6).value_or(1);
  const std::optional<int64_t> seed = fields.integer("seed", std::numeric_limits<int64_t>::min());
  generate.seed = seed ? static_cast<uint64_t>(*seed) : random_bits();
  generate.stop = fields.texts("stop");
  if (generate.stop.size() > 64) fields.fail("stop", "expected at most 64 texts");
  for (const std::string& stop : generate.stop) {
    // Each drawn token is compared with the beginnings of all of them.
    if (stop.empty() || stop.size() > 1024) fields.fail("stop", "expected texts of 1 to 1024 bytes");
  }
  generate.stop_at_end_of_text = !fields.flag("ignore_eos", false);
  all.n = all.best_of = fields.integer("n", 1, model.slots()).value_or(1);
  all.priority = fields.integer("priority", std::numeric_limits<int64_t>::min()).value_or(0);
  all.stream = fields.flag("stream", false);
  if (const Json* options = fields.find("stream_options")) {
    all.usage_in_stream = Fields(*options, "stream_options").flag("include_usage", false);
  }
  generate.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(0);
  generate.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(0);
  if (const Json* biases = fields.find("logit_bias")) {
    const Fields of_tokens(*biases, "logit_bias");
    for (const auto& [key, value] : biases->items()) {
      int32_t id = -1;
      if (!core::parse_number(key, id) || id < 0 || id >= model.model().config().vocab_size) {
        fields.fail("logit_bias",
                    fmt::format("expected tokens from 0 to {} as keys", model.model().config().vocab_size - 1));
      }
      generate.logit_bias[id] = static_cast<float>(of_tokens.number(key, -100, 100).value_or(0));
    }
  }
  return all;
}

void check_size_of_answer(const Fields& fields, std::span<const CompletionPrompt> prompts,
                          const CompletionParameters& parameters) {
  constexpr int64_t max_entries = int64_t{1} << 19, max_echoed = int64_t{1} << 24;
  const auto n = static_cast<double>(parameters.n);
  double tokens = 0, echoed = 0;  // a double holds also products that an integer does not
  for (const CompletionPrompt& prompt : prompts) {
    if (parameters.echo) tokens += n * static_cast<double>(prompt.ids.size());
    tokens += n * static_cast<double>(parameters.generate.max_tokens);
    echoed += n * static_cast<double>(prompt.text.size());
  }
  if (const double logprobs = tokens * static_cast<double>(1 + parameters.logprobs.value_or(0));
      parameters.logprobs && logprobs > static_cast<double>(max_entries)) {
    fields.fail(parameters.is_chat ? "top_logprobs" : "logprobs",
                fmt::format("which is up to {:.0f} log-probabilities for {:.0f} tokens, expected at most {} in an "
                            "answer; send fewer prompts, or a smaller max_tokens",
                            logprobs, tokens, max_entries));
  }
  if (echoed > static_cast<double>(max_echoed)) {
    fields.fail("n",
                fmt::format("so the answer repeats {:.0f} bytes of prompts, expected at most {}", echoed, max_echoed));
  }
}

Completion::Completion(const ServedModel& model, std::shared_ptr<Responder> responder, Metrics& metrics,
                       Worker& answers, std::vector<CompletionPrompt> prompts, CompletionParameters parameters)
    : model_(model),
      responder_(std::move(responder)),
      metrics_(metrics),
      answers_(answers),
      prompts_(std::move(prompts)),
      parameters_(std::move(parameters)),
      id_(fmt::format("{}{:016x}",
                      parameters_.response  ? "resp_"
                      : parameters_.is_chat ? "chatcmpl-"
                                            : "cmpl-",
                      random_bits())),
      created_(static_cast<int64_t>(std::time(nullptr))),
      choices_(prompts_.size() * static_cast<size_t>(parameters_.best_of)),
      results_(prompts_.size()) {}

EngineRequest Completion::request_for(size_t prompt) {
  EngineRequest request{.prompt = prompts_[prompt].ids};
  request.options = parameters_.generate;
  request.samples = parameters_.best_of;
  request.priority = parameters_.priority;
  request.logprobs = parameters_.logprobs;
  if (parameters_.best_of > parameters_.n && !request.logprobs) request.logprobs = 0;
  if (parameters_.echo) request.prompt_logprobs = parameters_.logprobs;
  // The requests keep this object until their end.
  request.on_event = [self = shared_from_this(), prompt](const EngineEvent& event) { self->on_event(prompt, event); };
  request.on_done = [self = shared_from_this(), prompt](const EngineResult* result, const std::exception_ptr& why) {
    self->on_done(prompt, result, why);
  };
  return request;
}

void Completion::start() {
  const std::lock_guard lock(mutex_);
  try {
    submit();
  } catch (...) {
    answered_ = true;
    cancel_all();
    throw;
  }
}

void Completion::submit() {
  Engine& engine = model_.engine();
  handles_.reserve(prompts_.size());
  for (size_t prompt = 0; prompt < prompts_.size(); ++prompt) handles_.push_back(engine.submit(request_for(prompt)));
  step("submitted");
  responder_->on_cancel([handles = handles_] {
    for (const Engine::Handle& handle : handles) handle.cancel();
  });
  if (!parameters_.stream) return;
  responder_->begin_events();
  if (parameters_.response) send_all(*responder_, parameters_.response->begin(envelope(true)));
  for (size_t i = 0; i < choices_.size(); ++i) {
    const size_t prompt = i / static_cast<size_t>(parameters_.best_of);
    if (parameters_.is_chat && !parameters_.response) {
      send(i, {{"delta", {{"role", "assistant"}, {"content", ""}}}, {"finish_reason", nullptr}});
    } else if (parameters_.echo) {
      send(i, {{"text", prompts_[prompt].text}, {"logprobs", nullptr}, {"finish_reason", nullptr}});
    }
    if (parameters_.logprobs) choices_[i].logprobs.emplace(model_, parameters_.is_chat, prompts_[prompt].ids);
  }
}

void Completion::cancel_all() {
  for (const Engine::Handle& handle : handles_) handle.cancel();
}

void Completion::on_event(size_t prompt, const EngineEvent& event) {
  const std::lock_guard lock(mutex_);
  if (answered_) return;
  step("event of the engine");  // what this function throws is what the request fails with
  const size_t index = prompt * static_cast<size_t>(parameters_.best_of) + static_cast<size_t>(event.sample);
  Choice& choice = choices_[index];
  if (event.drawn) {
    const auto now = core::Clock::now();
    if (!has_first_) metrics_.add_first_token(model_.name(), core::seconds_between(start_, now));
    if (!has_first_) responder_->note("first_token_seconds", core::seconds_since(start_));
    has_first_ = true;
    if (choice.last_time) {
      metrics_.add_between_tokens(model_.name(), core::seconds_between(*choice.last_time, now));
    }
    choice.last_time = now;
    ++generated_;
  }
  if (!parameters_.stream) return;
  OrderedJson logprobs;
  if (choice.logprobs) {
    add_tokens(*choice.logprobs, event.tokens);
    if (!choice.logprobs->empty()) logprobs = choice.logprobs->take();
  }
  if (event.text.empty() && logprobs.is_null() && (!event.end || parameters_.response)) return;
  OrderedJson one;
  if (parameters_.is_chat) {
    one["delta"] = event.text.empty() && event.end ? OrderedJson::object() : OrderedJson{{"content", event.text}};
  } else {
    one["text"] = event.text;
  }
  one["logprobs"] = std::move(logprobs);
  one["finish_reason"] = event.end ? OrderedJson(finish_reason(*event.end)) : OrderedJson();
  send(index, one);
}

OrderedJson Completion::envelope(bool is_chunk) const {
  const char* const object = !parameters_.is_chat ? "text_completion"
                             : is_chunk           ? "chat.completion.chunk"
                                                  : "chat.completion";
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_.name()}};
}

void Completion::send(size_t index, const OrderedJson& choice) {
  if (parameters_.response) return responder_->event(to_text(parameters_.response->delta(choice)));
  OrderedJson chunk = envelope(true);
  OrderedJson one{{"index", index}};
  one.update(choice);
  chunk["choices"] = OrderedJson::array({std::move(one)});
  responder_->event(to_text(chunk));
}

void Completion::on_done(size_t prompt, const EngineResult* result, const std::exception_ptr& why) {
  const std::lock_guard lock(mutex_);
  if (answered_) return;
  try {
    step("end of a request to the engine");
    if (result == nullptr) std::rethrow_exception(why);
    if (result->cancelled) throw ApiError{503, "the request was cancelled", "", "cancelled"};
    results_[prompt] = *result;
    if (parameters_.best_of > parameters_.n) keep_most_likely(results_[prompt].samples, parameters_.n);
    if (++ended_ < prompts_.size()) return;
    if (parameters_.stream && !parameters_.response) return finish();
    // This is the engine's thread, on which other requests wait.
    const bool is_posted = answers_.post([self = shared_from_this()] {
      answer(*self->responder_, [&] {
        const std::lock_guard posted_lock(self->mutex_);
        self->finish();
      });
    });
    if (!is_posted) throw ApiError{503, "the server is stopping", "", "stopping"};
  } catch (...) {
    answered_ = true;
    cancel_all();
    responder_->fail(std::current_exception());
  }
}

OrderedJson Completion::usage() const {
  int64_t prompt = 0, cached = 0;
  for (const EngineResult& result : results_) {
    prompt += result.prompt_tokens;
    cached += result.reused_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", generated_},
          {"total_tokens", prompt + generated_},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

namespace {

/// What only this server says about a request: times, and the certificate of evicted keys.
OrderedJson details_of(const std::vector<EngineResult>& results) {
  auto all = OrderedJson::array();
  for (const EngineResult& result : results) {
    auto samples = OrderedJson::array();
    for (const EngineSample& sample : result.samples) {
      const EvictionCertificate& certificate = sample.generation.certificate;
      samples.push_back({{"tokens", sample.generation.tokens},
                         {"seconds", sample.generation.seconds},
                         {"cache_bytes", sample.generation.cache_bytes},
                         {"evicted",
                          {{"keys", certificate.keys},
                           {"kept", certificate.kept},
                           {"worst_share", certificate.worst},
                           {"token", certificate.position},
                           {"layer", certificate.layer},
                           {"head", certificate.head}}}});
    }
    all.push_back({{"prompt_tokens", result.prompt_tokens},
                   {"reused_tokens", result.reused_tokens},
                   {"queue_seconds", result.queue_seconds},
                   {"prompt_seconds", result.prompt_seconds},
                   {"samples", std::move(samples)}});
  }
  return all;
}

}  // namespace

/// Tokens of a stop string and the end of the text are no part of the answer. But with `echo` all are written:
/// lm-evaluation-harness drops the last entry, which must not be one of the prompt.
void Completion::add_tokens(LogprobsJson& to, std::span<const EngineToken> tokens) const {
  for (const EngineToken& token : tokens) {
    if (token.in_text || parameters_.echo) to.add(token);
  }
}

OrderedJson Completion::choice(size_t prompt, size_t sample) const {
  const EngineSample& one = results_[prompt].samples[sample];
  const std::string text = (parameters_.echo ? prompts_[prompt].text : "") + one.generation.text;
  OrderedJson logprobs;
  if (parameters_.logprobs) {
    const std::vector<int32_t> none;
    LogprobsJson json(model_, parameters_.is_chat, parameters_.echo ? none : prompts_[prompt].ids);
    if (parameters_.echo) add_tokens(json, results_[prompt].prompt);
    add_tokens(json, one.tokens);
    logprobs = json.take();
  }
  OrderedJson result{{"index", prompt * static_cast<size_t>(parameters_.n) + sample}};
  if (parameters_.is_chat) {
    result["message"] = {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}};
  } else {
    result["text"] = text;
  }
  result["logprobs"] = std::move(logprobs);
  result["finish_reason"] = finish_reason(one.generation.end);
  return result;
}

OrderedJson Completion::whole() const {
  OrderedJson all = envelope(false);
  all["choices"] = OrderedJson::array();
  for (size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    for (size_t sample = 0; sample < results_[prompt].samples.size(); ++sample)
      all["choices"].push_back(choice(prompt, sample));
  }
  all["usage"] = usage();
  all["alibi"] = details_of(results_);
  if (parameters_.response) return parameters_.response->whole(all);
  return all;
}

void Completion::finish() {
  answered_ = true;
  responder_->note("model", model_.name());
  const OrderedJson used = usage();
  responder_->note("prompt_tokens", used["prompt_tokens"]);
  responder_->note("completion_tokens", generated_);
  if (!parameters_.stream) return responder_->reply(json_reply(whole()));
  if (parameters_.response) {
    std::vector<OrderedJson> events = parameters_.response->end(whole());
    const OrderedJson last = std::move(events.back());
    events.pop_back();
    send_all(*responder_, events);
    return responder_->end_events(to_text(last));
  }
  if (parameters_.usage_in_stream) {
    OrderedJson last = envelope(true);
    last["choices"] = OrderedJson::array();
    last["usage"] = used;
    last["alibi"] = details_of(results_);
    responder_->event(to_text(last));
  }
  responder_->end_events("[DONE]");
}

}  // namespace alibi::serve
