// Many texts at once: log-likelihoods of their ends, and texts after prompts.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "alibi/engine.h"
#include "alibi/loglikelihood.h"
#include "bindings.h"
#include "models/callbacks.h"
#include "models/convert.h"

namespace alibi::python {
namespace {

using namespace nb::literals;

/// Thrown through loglikelihoods(), which has no other way to be stopped.
struct Stopped {};

/// The texts of a packed batch: ids of all texts one after the other, and their counts.
std::vector<std::vector<int32_t>> unpacked(const Tensor& ids, const std::vector<int64_t>& counts) {
  std::span<const int32_t> rest = tokens_of(ids);
  std::vector<std::vector<int32_t>> texts;
  for (const int64_t count : counts) {
    const std::span<const int32_t> text = rest.first(static_cast<size_t>(count));
    texts.emplace_back(text.begin(), text.end());
    rest = rest.subspan(text.size());
  }
  return texts;
}

nb::tuple score_ends(const LanguageModel& model, nb::handle ids, const std::vector<int64_t>& counts,
                     const std::vector<int64_t>& targets, int64_t batch_tokens) {
  const Tensor read = ids_of(ids, "loglikelihoods");
  Callbacks callbacks{nb::handle(Py_None)};
  std::vector<double> sums;
  std::vector<uint8_t> greedy;
  try {
    const nb::gil_scoped_release others_run;
    std::vector<Continuation> texts;
    for (std::vector<int32_t>& text : unpacked(read, counts)) texts.push_back({std::move(text), targets[texts.size()]});
    LoglikelihoodOptions options;
    options.batch_tokens = batch_tokens;
    options.on_progress = [&](int64_t, int64_t) {
      if (!callbacks.look_for_signals()) throw Stopped{};
    };
    for (const Loglikelihood& found : loglikelihoods(model, texts, options)) {
      sums.push_back(found.sum);
      greedy.push_back(found.greedy ? 1 : 0);
    }
  } catch (const Stopped&) {
    callbacks.rethrow();
  }
  return nb::make_tuple(array_of(std::move(sums)), array_of(std::move(greedy)));
}

nb::list generate_texts(const LanguageModel& model, nb::handle ids, const std::vector<int64_t>& counts,
                        GenerateOptions options, int64_t slots) {
  const Tensor read = ids_of(ids, "generate_batch");
  Callbacks callbacks{nb::handle(Py_None)};
  std::vector<Generation> made;
  {
    const nb::gil_scoped_release others_run;
    EngineOptions settings;
    settings.slots = slots;
    settings.step_tokens = std::max(settings.step_tokens, slots + settings.chunk_tokens);
    settings.queue = std::ssize(counts);
    Engine engine(model, settings);
    std::vector<Engine::Handle> handles;
    for (std::vector<int32_t>& prompt : unpacked(read, counts)) {
      EngineRequest request;
      request.prompt = std::move(prompt);
      request.options = options;
      handles.push_back(engine.submit(std::move(request)));
    }
    for (const Engine::Handle& handle : handles) {
      while (!handle.wait_for(0.05)) {
        if (!callbacks.look_for_signals()) break;
      }
      if (callbacks.stopped()) break;
      made.push_back(handle.wait().samples.front().generation);
    }
  }
  callbacks.rethrow();
  nb::list result;
  for (const Generation& generation : made) result.append(described(generation));
  return result;
}

}  // namespace

void bind_batches(nb::module_& m) {
  m.def(
      "encode_prompt",
      [](const LanguageModel& model, const std::string& text) {
        return array_of(model.tokenizer().encode_prompt(text));
      },
      "model"_a, "text"_a);
  m.def("loglikelihoods", score_ends, "model"_a, "ids"_a, "counts"_a, "targets"_a, "batch_tokens"_a);
  m.def(
      "generate_batch",
      [](const LanguageModel& model, nb::handle ids, const std::vector<int64_t>& counts, int64_t max_tokens,
         double temperature, int top_k, double top_p, double min_p, double repetition_penalty, uint64_t seed,
         bool stop_at_end_of_text, std::vector<std::string> stop, int64_t slots) {
        return generate_texts(model, ids, counts,
                              {.max_tokens = max_tokens,
                               .temperature = temperature,
                               .top_k = top_k,
                               .top_p = top_p,
                               .min_p = min_p,
                               .repetition_penalty = repetition_penalty,
                               .seed = seed,
                               .stop_at_end_of_text = stop_at_end_of_text,
                               .stop = std::move(stop)},
                              slots);
      },
      "model"_a, "ids"_a, "counts"_a, "max_tokens"_a, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a,
      "repetition_penalty"_a, "seed"_a, "stop_at_end_of_text"_a, "stop"_a, "slots"_a);
}

}  // namespace alibi::python
