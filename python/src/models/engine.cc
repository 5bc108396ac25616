// The engine: many texts at once.
#include "alibi/engine.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "models/background.h"
#include "models/convert.h"
#include "models/ends.h"
#include "models/pieces.h"

namespace alibi::python {
namespace {

using namespace nb::literals;

using EngineThread = WithThread<Engine>;
using SamplePiece = std::pair<int64_t, std::string>;

class SubmittedRequest {
  /// Throws Error in a child made by fork().
  void check_process() const {
    if (engine_.is_of_parent()) engine_.get();
  }
  /// A caller who is interrupted does not wait for the result any longer.
  template <class Wait>
  auto or_cancelled(const Wait& wait) {
    try {
      return wait();
    } catch (const nb::python_error&) {
      handle_->cancel();
      throw;
    }
  }

 public:
  SubmittedRequest(const EngineThread& engine, EngineRequest request)
      : engine_(engine), pieces_(std::make_shared<Pieces<SamplePiece>>()) {
    request.on_event = [pieces = pieces_](const EngineEvent& event) {
      if (!event.text.empty()) pieces->put({event.sample, event.text});
    };
    request.on_done = [pieces = pieces_](const EngineResult*, std::exception_ptr failure) { pieces->end(failure); };
    handle_.emplace(engine.get().submit(std::move(request)));
  }
  /// What nobody can read is not generated any further.
  ~SubmittedRequest() {
    if (!engine_.is_of_parent()) handle_->cancel();
  }
  SubmittedRequest(const SubmittedRequest&) = delete;
  SubmittedRequest& operator=(const SubmittedRequest&) = delete;

  /// (sample, text), or None after the last one. Throws what the request failed with.
  nb::object next() {
    check_process();
    const std::optional<SamplePiece> piece = or_cancelled([&] { return pieces_->next(); });
    return piece ? nb::object(nb::make_tuple(piece->first, text_of(piece->second))) : nb::none();
  }

  nb::dict result() {
    check_process();
    or_cancelled([&] {
      bool ended = false;
      while (!ended) {
        {
          const WithoutLock others_run;
          ended = handle_->wait_for(0.05);
        }
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
      }
    });
    return dict_of(handle_->wait());
  }

  void cancel() {
    check_process();
    handle_->cancel();
  }

 private:
  static nb::list tokens_of(const std::vector<EngineToken>& tokens) {
    nb::list all;
    for (const EngineToken& token : tokens) {
      nb::list top;
      for (const TokenProbability& other : token.top) top.append(nb::make_tuple(other.id, other.logprob));
      all.append(nb::make_tuple(token.id, token.logprob, top));
    }
    return all;
  }

  static nb::dict dict_of(const EngineResult& found) {
    nb::list samples;
    for (const EngineSample& sample : found.samples) {
      nb::dict one;
      one["text"] = text_of(sample.generation.text);
      one["end"] = name_of_end(sample.generation.end);
      one["seconds"] = sample.generation.seconds;
      one["tokens"] = tokens_of(sample.tokens);
      one["evicted_keys"] = sample.generation.certificate.keys;
      one["evicted_share"] = sample.generation.certificate.worst;
      samples.append(one);
    }
    nb::dict result;
    result["samples"] = samples;
    result["prompt"] = tokens_of(found.prompt);
    result["prompt_tokens"] = found.prompt_tokens;
    result["reused_tokens"] = found.reused_tokens;
    result["cancelled"] = found.cancelled;
    return result;
  }

  const EngineThread& engine_;
  std::shared_ptr<Pieces<SamplePiece>> pieces_;
  std::optional<Engine::Handle> handle_;
};

}  // namespace

void bind_engine(nb::module_& m) {
  m.def("end_threads", Background::end_all);
  nb::class_<SubmittedRequest>(m, "SubmittedRequest")
      .def("next", &SubmittedRequest::next)
      .def("result", &SubmittedRequest::result)
      .def("cancel", &SubmittedRequest::cancel);
  nb::class_<EngineThread>(m, "Engine")
      .def(
          "__init__",
          [](EngineThread* self, const LanguageModel& model, int64_t slots, int64_t step_tokens, int64_t chunk_tokens,
             int64_t queue, int64_t max_tokens, int64_t prefix_bytes, std::optional<int64_t> memory,
             std::optional<double> eviction_tolerance, std::optional<double> query_norm) {
            const EngineOptions options{
                .slots = slots,
                .step_tokens = step_tokens,
                .chunk_tokens = chunk_tokens,
                .queue = queue,
                .max_tokens = max_tokens,
                .prefix_bytes = prefix_bytes,
                .context = {.memory = memory, .eviction_tolerance = eviction_tolerance, .query_norm = query_norm}};
            new (self) EngineThread("Engine", std::make_unique<Engine>(model, options));
          },
          nb::keep_alive<1, 2>(), "model"_a, "slots"_a, "step_tokens"_a, "chunk_tokens"_a, "queue"_a, "max_tokens"_a,
          "prefix_bytes"_a, "memory"_a.none(), "eviction_tolerance"_a.none(), "query_norm"_a.none())
      .def(
          "submit",
          [](const EngineThread& engine, nb::handle ids, int64_t samples, int64_t priority,
             std::optional<int64_t> logprobs, std::optional<int64_t> prompt_logprobs, const nb::dict& options) {
            const Tensor read = ids_of(ids, "engine");
            const std::span<const int32_t> tokens = python::tokens_of(read);
            return std::make_unique<SubmittedRequest>(engine, EngineRequest{.prompt = {tokens.begin(), tokens.end()},
                                                                            .options = generate_options(options),
                                                                            .samples = samples,
                                                                            .priority = priority,
                                                                            .logprobs = logprobs,
                                                                            .prompt_logprobs = prompt_logprobs});
          },
          nb::keep_alive<0, 1>(), "ids"_a, "samples"_a, "priority"_a, "logprobs"_a.none(), "prompt_logprobs"_a.none(),
          "options"_a)
      .def("close", [](const EngineThread& engine) { engine.get().close(); })
      .def("stats", [](const EngineThread& engine) {
        const EngineStats stats = engine.get().stats();
        nb::dict all;
        all["running"] = stats.running;
        all["waiting"] = stats.waiting;
        all["requests"] = stats.requests;
        all["cancelled"] = stats.cancelled;
        all["failed"] = stats.failed;
        all["steps"] = stats.steps;
        all["prompt_tokens"] = stats.prompt_tokens;
        all["reused_tokens"] = stats.reused_tokens;
        all["generated_tokens"] = stats.generated_tokens;
        all["cache_bytes"] = stats.cache_bytes;
        all["prefix_bytes"] = stats.prefix_bytes;
        all["evicted_keys"] = stats.evicted_keys;
        all["seconds"] = stats.seconds;
        return all;
      });
}

}  // namespace alibi::python
