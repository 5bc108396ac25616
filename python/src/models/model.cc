// Language models: what they write, how well they predict, what they compute.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "alibi/embed.h"
#include "alibi/evaluate.h"
#include "alibi/generate.h"
#include "alibi/model_options.h"
#include "alibi/score.h"
#include "alibi/training_data.h"
#include "bindings.h"
#include "models/callbacks.h"
#include "models/convert.h"
#include "models/ends.h"

namespace alibi::python {
namespace {

using namespace nb::literals;

nb::dict generate(const LanguageModel& model, const std::string& prompt, int64_t sample, GenerateOptions options,
                  nb::handle on_text) {
  Callbacks callbacks(on_text);
  Generation made;
  {
    const nb::gil_scoped_release others_run;
    options.on_token = [&](int32_t) { return callbacks.look_for_signals(); };
    if (!on_text.is_none()) {
      options.on_text = [&](std::string_view text) { return callbacks.call([&] { return text_of(text); }); };
    }
    made = Prompt(model, prompt).generate(options, sample);
  }
  callbacks.rethrow();
  nb::dict result;
  result["text"] = text_of(made.text);
  result["tokens"] = made.tokens;
  result["end"] = name_of_end(made.end);
  result["seconds"] = made.seconds;
  result["tokens_per_second"] = made.tokens_per_second();
  return result;
}

nb::object score(const LanguageModel& model, nb::handle ids, int64_t context_length) {
  constexpr size_t piece = 1024;  // tokens between two looks for Ctrl-C
  const Tensor read = ids_of(ids, "score");
  Callbacks callbacks{nb::handle(Py_None)};
  std::vector<float> nll;
  {
    const nb::gil_scoped_release others_run;
    Scorer scorer(model, {.context_length = context_length});
    for (std::span<const int32_t> rest = tokens_of(read); !rest.empty() && callbacks.look_for_signals();) {
      const std::span<const int32_t> part = rest.first(std::min(piece, rest.size()));
      const std::vector<float> scored = scorer.score(part);
      nll.insert(nll.end(), scored.begin(), scored.end());
      rest = rest.subspan(part.size());
    }
  }
  callbacks.rethrow();
  return array_of(std::move(nll));
}

/// Thrown through evaluate(), which has no other way to be stopped.
struct Stopped {};

nb::dict evaluate_model(const LanguageModel& model, nb::handle ids, int64_t length, int64_t stride,
                        nb::handle on_progress) {
  const Tensor read = ids_of(ids, "evaluate");
  Callbacks callbacks(on_progress);
  EvaluateOptions options;
  options.length = length;
  options.stride = stride;
  options.on_progress = [&](int64_t done, int64_t all) {
    if (!callbacks.call([&] { return nb::float_(static_cast<double>(done) / static_cast<double>(all)); })) {
      throw Stopped{};
    }
  };
  Evaluation found;
  try {
    const nb::gil_scoped_release others_run;
    found = evaluate(model, tokens_of(read), options);
  } catch (const Stopped&) {
    callbacks.rethrow();
    throw Error("[evaluate] on_progress returned False");
  }
  nb::dict result;
  result["length"] = found.length;
  result["stride"] = found.stride;
  result["tokens"] = found.tokens;
  result["nll"] = found.nll();
  result["perplexity"] = found.perplexity();
  result["seconds"] = found.seconds;
  result["tokens_per_second"] = found.tokens_per_second();
  result["position_nll"] = array_of(found.position_nll);
  result["position_tokens"] = array_of(found.position_tokens);
  return result;
}

nb::dict describe(const LanguageModel& model) {
  nb::dict result;
  for (const auto& [name, value] : config_values(model.config())) result[name.c_str()] = nb::cast(value);
  result["parameters"] = model.parameter_count();
  result["tokenizer"] = model.has_tokenizer() ? nb::cast(std::string(model.tokenizer().kind())) : nb::none();
  return result;
}

std::vector<int32_t> read_text(const LanguageModel& model, const std::vector<std::string>& texts,
                               const std::string& field, int64_t* bytes) {
  const ScoredText text = text_to_score(model.tokenizer(), texts, {}, field);
  *bytes = text.bytes;
  return {text.stream.tokens.begin(), text.stream.tokens.end()};
}

/// compute(ids) as an array, while other threads of Python run.
template <class Compute>
nb::object computed(nb::handle ids, const char* operation, const Compute& compute) {
  const Tensor read = ids_of(ids, operation);
  Tensor result;
  {
    const nb::gil_scoped_release others_run;
    result = compute(read);
  }
  return array_of(std::move(result));
}

}  // namespace

void bind_model(nb::module_& m) {
  nb::class_<LanguageModel>(m, "LanguageModel")
      .def_static(
          "load",
          [](const std::string& folder, const std::string& precision, const std::optional<std::string>& weights) {
            const Precision chosen = precision_from(precision);
            const std::optional<DType> type = weights ? std::optional(weight_type_from(*weights)) : std::nullopt;
            LanguageModel model = LanguageModel::load(folder);
            model.set_precision(chosen);
            if (type) model.convert_weights(*type);
            return model;
          },
          "folder"_a, "precision"_a, "weights"_a.none(), nb::call_guard<nb::gil_scoped_release>())
      .def(
          "save", [](const LanguageModel& model, const std::string& folder) { model.save(folder); }, "folder"_a,
          nb::call_guard<nb::gil_scoped_release>())
      .def("describe", describe)
      .def("slopes", &LanguageModel::slopes)
      .def("weight_bytes", &LanguageModel::weight_bytes)
      .def(
          "encode",
          [](const LanguageModel& model, const std::string& text) { return array_of(model.tokenizer().encode(text)); },
          "text"_a)
      .def(
          "decode",
          [](const LanguageModel& model, nb::handle ids) {
            return text_of(model.tokenizer().decode(tokens_of(ids_of(ids, "decode"))));
          },
          "ids"_a)
      .def(
          "read",
          [](const LanguageModel& model, const std::vector<std::string>& texts, const std::string& field) {
            int64_t bytes = 0;
            std::vector<int32_t> tokens;
            {
              const nb::gil_scoped_release others_run;
              tokens = read_text(model, texts, field, &bytes);
            }
            return nb::make_tuple(array_of(std::move(tokens)), bytes);
          },
          "texts"_a, "field"_a)
      .def(
          "hidden",
          [](const LanguageModel& model, nb::handle ids) {
            return computed(ids, "hidden", [&](const Tensor& read) { return model.hidden(read); });
          },
          "ids"_a)
      .def(
          "logits",
          [](const LanguageModel& model, nb::handle ids) {
            return computed(ids, "logits", [&](const Tensor& read) { return model.logits(read); });
          },
          "ids"_a)
      .def(
          "generate_ids",
          [](const LanguageModel& model, nb::handle ids, int64_t max_tokens, double temperature, uint64_t seed) {
            const Tensor prompt = ids_of(ids, "generate_ids");
            Callbacks callbacks{nb::none()};
            GenerateOptions options;
            options.max_tokens = max_tokens;
            options.temperature = temperature;
            options.seed = seed;
            options.on_token = [&](int32_t) { return callbacks.look_for_signals(); };
            std::vector<int32_t> made;
            {
              const nb::gil_scoped_release others_run;
              made = model.generate_ids(tokens_of(prompt), options);
            }
            callbacks.rethrow();
            return array_of(std::move(made));
          },
          "ids"_a, "max_tokens"_a, "temperature"_a, "seed"_a)
      .def(
          "embed",
          [](const LanguageModel& model, const std::vector<std::string>& texts, const std::string& pooling,
             bool normalize) {
            Tensor vectors;
            {
              const nb::gil_scoped_release others_run;
              vectors = embed(model, texts, {.pooling = pooling_from(pooling), .normalize = normalize});
            }
            return array_of(std::move(vectors));
          },
          "texts"_a, "pooling"_a, "normalize"_a)
      .def("score", score, "ids"_a, "context_length"_a)
      .def("evaluate", evaluate_model, "ids"_a, "length"_a, "stride"_a, "on_progress"_a.none())
      .def(
          "generate",
          [](const LanguageModel& model, const std::string& prompt, int64_t max_tokens, double temperature, int top_k,
             double top_p, double min_p, double repetition_penalty, uint64_t seed, bool stop_at_end_of_text,
             std::vector<std::string> stop, int64_t sample, nb::handle on_text) {
            GenerateOptions options;
            options.max_tokens = max_tokens;
            options.temperature = temperature;
            options.top_k = top_k;
            options.top_p = top_p;
            options.min_p = min_p;
            options.repetition_penalty = repetition_penalty;
            options.seed = seed;
            options.stop_at_end_of_text = stop_at_end_of_text;
            options.stop = std::move(stop);
            return generate(model, prompt, sample, std::move(options), on_text);
          },
          "prompt"_a, "max_tokens"_a, "temperature"_a, "top_k"_a, "top_p"_a, "min_p"_a, "repetition_penalty"_a,
          "seed"_a, "stop_at_end_of_text"_a, "stop"_a, "sample"_a, "on_text"_a.none());
}

}  // namespace alibi::python
