// Language models: what they write, how well they predict, what they compute.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "alibi/embed.h"
#include "alibi/evaluate.h"
#include "alibi/generate.h"
#include "alibi/hub.h"
#include "alibi/layer_states.h"
#include "alibi/model_options.h"
#include "alibi/score.h"
#include "alibi/training_data.h"
#include "bindings.h"
#include "models/background.h"
#include "models/callbacks.h"
#include "models/convert.h"
#include "models/ends.h"
#include "models/pieces.h"

namespace alibi::python {
namespace {

using namespace nb::literals;

nb::dict generate(const LanguageModel& model, const std::string& prompt, int64_t sample, const nb::dict& given,
                  nb::handle on_text) {
  Callbacks callbacks(on_text);
  GenerateOptions options = generate_options(given);
  if (!on_text.is_none()) {
    options.on_text = [&](std::string_view text) { return callbacks.call([&] { return text_of(text); }); };
  }
  const Generation made = computed(callbacks, [&] { return Prompt(model, prompt).generate(options, sample); });
  nb::dict result;
  result["text"] = text_of(made.text);
  result["tokens"] = made.tokens;
  result["end"] = name_of_end(made.end);
  result["seconds"] = made.seconds;
  result["tokens_per_second"] = made.tokens_per_second();
  return result;
}

/// Generates a text on a thread of its own.
class TextStream {
 public:
  TextStream(const LanguageModel& model, std::string prompt, int64_t sample, GenerateOptions options,
             std::shared_ptr<Pieces<std::string>> pieces)
      : model_(model), pieces_(std::move(pieces)) {
    options.on_text = [this](std::string_view text) {
      pieces_->put(std::string(text));
      return !closed_;
    };
    thread_ = std::thread([this, prompt = std::move(prompt), sample, options = std::move(options)] {
      std::exception_ptr failure;
      try {
        const InterruptScope scope([this] {
          if (closed_) throw Error("[stream] closed");
        });
        Prompt(model_, prompt).generate(options, sample);
      } catch (...) {
        failure = std::current_exception();
      }
      pieces_->end(failure);
    });
  }
  ~TextStream() {
    closed_ = true;
    thread_.join();
  }

 private:
  const LanguageModel& model_;
  const std::shared_ptr<Pieces<std::string>> pieces_;
  std::atomic<bool> closed_{false};
  std::thread thread_;
};

/// For Python's iterator.
class Stream {
 public:
  Stream(const LanguageModel& model, const std::string& prompt, int64_t sample, const nb::dict& given)
      : pieces_(std::make_shared<Pieces<std::string>>()),
        thread_(std::make_unique<WithThread<TextStream>>(
            "stream", std::make_unique<TextStream>(model, prompt, sample, generate_options(given), pieces_))) {}

  nb::object next() {
    if (thread_->is_of_parent()) thread_->get();  // throws
    const std::optional<std::string> piece = pieces_->next();
    return piece ? text_of(*piece) : nb::none();
  }
  void close() { thread_.reset(); }

 private:
  std::shared_ptr<Pieces<std::string>> pieces_;
  std::unique_ptr<WithThread<TextStream>> thread_;
};

nb::object score(const LanguageModel& model, nb::handle ids, int64_t context_length) {
  const Tensor read = ids_of(ids, "score");
  return array_of(computed([&] {
    constexpr size_t piece = 1024;
    std::vector<float> nll;
    Scorer scorer(model, {.context_length = context_length});
    for (std::span<const int32_t> rest = tokens_of(read); !rest.empty();) {
      const std::span<const int32_t> part = rest.first(std::min(piece, rest.size()));
      const std::vector<float> scored = scorer.score(part);
      nll.insert(nll.end(), scored.begin(), scored.end());
      rest = rest.subspan(part.size());
    }
    return nll;
  }));
}

nb::dict evaluate_model(const LanguageModel& model, nb::handle ids, int64_t length, int64_t stride,
                        nb::handle on_progress) {
  const Tensor read = ids_of(ids, "evaluate");
  Callbacks callbacks(on_progress);
  EvaluateOptions options;
  options.length = length;
  options.stride = stride;
  options.on_progress = [&](int64_t done, int64_t all) {
    if (callbacks.call([&] { return nb::float_(static_cast<double>(done) / static_cast<double>(all)); })) return;
    if (callbacks.stopped()) throw Stopped{};
    throw Error("[evaluate] on_progress returned False");
  };
  const Evaluation found = computed(callbacks, [&] { return evaluate(model, tokens_of(read), options); });
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

}  // namespace

void bind_model(nb::module_& m) {
  m.def(
      "find_model", [](const std::string& name) { return find_model(name).string(); }, "name"_a);
  nb::class_<LanguageModel>(m, "LanguageModel")
      .def_static(
          "load",
          [](const std::string& folder, const std::string& precision, const std::optional<std::string>& weights,
             bool quantize_activations) {
            const Precision chosen = precision_from(precision);
            const std::optional<DType> type = weights ? std::optional(weight_type_from(*weights)) : std::nullopt;
            LanguageModel model = LanguageModel::load(find_model(folder));
            model.set_precision(chosen);
            if (type) model.convert_weights(*type);
            model.set_quantized_activations(quantize_activations);
            return model;
          },
          "folder"_a, "precision"_a, "weights"_a.none(), "quantize_activations"_a, nb::call_guard<WithoutLock>())
      .def(
          "save", [](const LanguageModel& model, const std::string& folder) { model.save(folder); }, "folder"_a,
          nb::call_guard<WithoutLock>())
      .def("describe", describe)
      .def("slopes", &LanguageModel::slopes)
      .def("weight_bytes", &LanguageModel::weight_bytes)
      .def(
          "encode",
          [](const LanguageModel& model, const std::string& text) {
            return array_of(computed([&] { return model.tokenizer().encode(text); }));
          },
          "text"_a)
      .def(
          "decode",
          [](const LanguageModel& model, nb::handle ids) {
            const Tensor read = ids_of(ids, "decode");
            return text_of(computed([&] { return model.tokenizer().decode(tokens_of(read)); }));
          },
          "ids"_a)
      .def(
          "pieces",
          [](const LanguageModel& model, nb::handle ids) {
            const Tensor read = ids_of(ids, "decode");
            nb::list pieces;
            for (const int32_t id : tokens_of(read)) pieces.append(text_of(model.tokenizer().decode({&id, 1})));
            return nb::tuple(pieces);
          },
          "ids"_a)
      .def(
          "read",
          [](const LanguageModel& model, const std::vector<std::string>& texts, const std::string& field) {
            int64_t bytes = 0;
            std::vector<int32_t> tokens = computed([&] { return read_text(model, texts, field, &bytes); });
            return nb::make_tuple(array_of(std::move(tokens)), bytes);
          },
          "texts"_a, "field"_a)
      .def(
          "hidden",
          [](const LanguageModel& model, nb::handle ids) {
            const Tensor read = ids_of(ids, "hidden");
            return array_of(computed([&] { return model.hidden(read); }));
          },
          "ids"_a)
      .def(
          "logits",
          [](const LanguageModel& model, nb::handle ids) {
            const Tensor read = ids_of(ids, "logits");
            return array_of(computed([&] { return model.logits(read); }));
          },
          "ids"_a)
      .def(
          "layer_states",
          [](const LanguageModel& model, nb::handle ids, const std::vector<int64_t>& rows) {
            const Tensor read = ids_of(ids, "layer_states");
            LayerStates found = computed([&] { return layer_states(model, read, rows); });
            nb::list states;
            for (Tensor& state : found.states) states.append(array_of(std::move(state)));
            return nb::make_tuple(states, found.logits.defined() ? array_of(std::move(found.logits)) : nb::none());
          },
          "ids"_a, "rows"_a)
      .def(
          "generate_ids",
          [](const LanguageModel& model, nb::handle ids, int64_t max_tokens, double temperature, uint64_t seed) {
            const Tensor prompt = ids_of(ids, "generate_ids");
            GenerateOptions options;
            options.max_tokens = max_tokens;
            options.temperature = temperature;
            options.seed = seed;
            return array_of(computed([&] { return model.generate_ids(tokens_of(prompt), options); }));
          },
          "ids"_a, "max_tokens"_a, "temperature"_a, "seed"_a)
      .def(
          "embed",
          [](const LanguageModel& model, const std::vector<std::string>& texts, const std::string& pooling,
             bool normalize) {
            const EmbedOptions options{.pooling = pooling_from(pooling), .normalize = normalize};
            return array_of(computed([&] { return embed(model, texts, options); }));
          },
          "texts"_a, "pooling"_a, "normalize"_a)
      .def("score", score, "ids"_a, "context_length"_a)
      .def("evaluate", evaluate_model, "ids"_a, "length"_a, "stride"_a, "on_progress"_a.none())
      .def("generate", generate, "prompt"_a, "sample"_a, "options"_a, "on_text"_a.none())
      .def(
          "stream",
          [](const LanguageModel& model, const std::string& prompt, int64_t sample, const nb::dict& options) {
            return std::make_unique<Stream>(model, prompt, sample, options);
          },
          nb::keep_alive<0, 1>(), "prompt"_a, "sample"_a, "options"_a);
  nb::class_<Stream>(m, "Stream").def("next", &Stream::next).def("close", &Stream::close);
}

}  // namespace alibi::python
