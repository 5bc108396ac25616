// The engine: many texts at once.
#include "alibi/engine.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "models/callbacks.h"
#include "models/convert.h"
#include "models/ends.h"

namespace alibi::python {
namespace {

using namespace nb::literals;

/// Pieces of texts, from the engine's thread to Python's.
struct Pieces {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<int64_t, std::string>> waiting;
  bool ended = false;
};

class SubmittedRequest {
 public:
  SubmittedRequest(Engine& engine, EngineRequest request) : pieces_(std::make_shared<Pieces>()) {
    request.on_event = [pieces = pieces_](const EngineEvent& event) {
      if (event.text.empty()) return;
      const std::lock_guard lock(pieces->mutex);
      pieces->waiting.emplace_back(event.sample, event.text);
      pieces->changed.notify_all();
    };
    request.on_done = [pieces = pieces_](const EngineResult*, std::exception_ptr) {
      const std::lock_guard lock(pieces->mutex);
      pieces->ended = true;
      pieces->changed.notify_all();
    };
    handle_.emplace(engine.submit(std::move(request)));
  }

  /// (sample, text), or None after the last one.
  nb::object next() {
    while (true) {
      std::optional<std::pair<int64_t, std::string>> piece;
      {
        const nb::gil_scoped_release others_run;
        std::unique_lock lock(pieces_->mutex);
        pieces_->changed.wait_for(lock, std::chrono::milliseconds(50),
                                  [this] { return !pieces_->waiting.empty() || pieces_->ended; });
        if (!pieces_->waiting.empty()) {
          piece = std::move(pieces_->waiting.front());
          pieces_->waiting.pop_front();
        } else if (pieces_->ended) {
          break;
        }
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      if (piece) return nb::make_tuple(piece->first, text_of(piece->second));
    }
    return nb::none();
  }

  nb::dict result() {
    while (true) {
      {
        const nb::gil_scoped_release others_run;
        if (handle_->wait_for(0.05)) break;
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    return dict_of(handle_->wait());
  }

  void cancel() { handle_->cancel(); }

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

  std::shared_ptr<Pieces> pieces_;
  std::optional<Engine::Handle> handle_;
};

}  // namespace

void bind_engine(nb::module_& m) {
  nb::class_<SubmittedRequest>(m, "SubmittedRequest")
      .def("next", &SubmittedRequest::next)
      .def("result", &SubmittedRequest::result)
      .def("cancel", &SubmittedRequest::cancel);
  nb::class_<Engine>(m, "Engine")
      .def(
          "__init__",
          [](Engine* self, const LanguageModel& model, int64_t slots, int64_t step_tokens, int64_t chunk_tokens,
             int64_t queue, int64_t max_tokens, int64_t prefix_bytes, std::optional<int64_t> memory,
             std::optional<double> eviction_tolerance) {
            new (self) Engine(model, {.slots = slots,
                                      .step_tokens = step_tokens,
                                      .chunk_tokens = chunk_tokens,
                                      .queue = queue,
                                      .max_tokens = max_tokens,
                                      .prefix_bytes = prefix_bytes,
                                      .context = {.memory = memory, .eviction_tolerance = eviction_tolerance}});
          },
          nb::keep_alive<1, 2>(), "model"_a, "slots"_a, "step_tokens"_a, "chunk_tokens"_a, "queue"_a, "max_tokens"_a,
          "prefix_bytes"_a, "memory"_a.none(), "eviction_tolerance"_a.none())
      .def(
          "submit",
          [](Engine& engine, nb::handle ids, int64_t samples, std::optional<int64_t> logprobs,
             std::optional<int64_t> prompt_logprobs, int64_t max_tokens, double temperature, int top_k, double top_p,
             double min_p, double repetition_penalty, uint64_t seed, bool stop_at_end_of_text,
             std::vector<std::string> stop) {
            const Tensor read = ids_of(ids, "engine");
            const std::span<const int32_t> tokens = python::tokens_of(read);
            EngineRequest request{.prompt = {tokens.begin(), tokens.end()}};
            request.samples = samples;
            request.logprobs = logprobs;
            request.prompt_logprobs = prompt_logprobs;
            GenerateOptions& options = request.options;
            options.max_tokens = max_tokens;
            options.temperature = temperature;
            options.top_k = top_k;
            options.top_p = top_p;
            options.min_p = min_p;
            options.repetition_penalty = repetition_penalty;
            options.seed = seed;
            options.stop_at_end_of_text = stop_at_end_of_text;
            options.stop = std::move(stop);
            return std::make_unique<SubmittedRequest>(engine, std::move(request));
          },
          nb::keep_alive<0, 1>(), "ids"_a, "samples"_a, "logprobs"_a.none(), "prompt_logprobs"_a.none(), "max_tokens"_a,
          "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "repetition_penalty"_a, "seed"_a, "stop_at_end_of_text"_a,
          "stop"_a)
      .def("close", &Engine::close)
      .def("stats", [](const Engine& engine) {
        const EngineStats stats = engine.stats();
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
