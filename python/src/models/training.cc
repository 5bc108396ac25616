// Training a language model on text.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "alibi/language_model.h"
#include "alibi/model_options.h"
#include "alibi/train.h"
#include "alibi/training_data.h"
#include "bindings.h"
#include "models/callbacks.h"
#include "models/convert.h"

namespace alibi::python {
namespace {

using namespace nb::literals;

nb::dict status_of(const TrainStatus& status) {
  nb::dict result;
  result["phase"] = "train";
  result["step"] = status.step;
  result["steps"] = status.steps;
  result["tokens"] = status.tokens;
  result["loss"] = status.loss;
  result["learning_rate"] = status.learning_rate;
  result["tokens_per_second"] = status.tokens_per_second;
  result["seconds"] = status.seconds;
  result["seconds_left"] = status.seconds_left;
  result["valid_loss"] = nb::cast(status.valid_loss);
  result["fraction"] = static_cast<double>(status.step) / static_cast<double>(status.steps);
  return result;
}

const char* name_of_end(TrainEnd end) {
  switch (end) {
    case TrainEnd::all_tokens:
      return "all_tokens";
    case TrainEnd::no_gain:
      return "no_gain";
    case TrainEnd::asked:
      return "asked";
  }
  return "";
}

/// The model that training begins with.
LanguageModel begin(const std::string& from, const std::string& preset_name, const std::string& position,
                    const std::optional<float>& dropout, const ModelOptions& shape, int64_t length, uint64_t seed,
                    const std::shared_ptr<const Tokenizer>& tokenizer) {
  if (!from.empty()) {
    LanguageModel model = LanguageModel::load(from);
    if (model.tokenizer().fingerprint() != tokenizer->fingerprint()) {
      throw Error("[train] the text is in tokens of another tokenizer than that of " + from);
    }
    model.set_train_length(length);
    return model;
  }
  const Position method = position_from(position);
  // Twice: options ask which method and length it is, and the method's embedding scale how wide they made it.
  const LanguageModelConfig usual = with_position(preset(preset_name), method, length);
  LanguageModelConfig config = with_position(with_options(usual, shape, usual), method, length);
  if (shape.embedding_scale > 0) config.embedding_scale = static_cast<float>(shape.embedding_scale);
  if (dropout) config = with_dropout(config, *dropout);
  return LanguageModel(with_vocab_size(config, tokenizer->vocab_size()), seed, tokenizer);
}

nb::object train_model(const std::vector<std::string>& texts, const std::vector<std::string>& valid,
                       const std::string& field, const nb::dict& tokenizer, const std::string& from,
                       const std::string& preset_name, const std::string& position, std::optional<float> dropout,
                       nb::dict given, const std::string& out, bool resume, bool overwrite, nb::handle on_progress) {
  TrainOptions options = training_defaults(preset_name);
  const bool own_batch = given.contains("batch_tokens");
  take_options(options, given, "train");
  if (!own_batch) options.batch_tokens = std::min(options.batch_tokens, options.tokens);
  ModelOptions shape;
  const size_t left = given.size();
  take_options(shape, given, "train");
  if (!from.empty() && (left != given.size() || dropout)) {
    throw UsageError("[train] from_model begins with a model that has its shape; leave out the options of the model");
  }
  refuse_rest(given, "train");
  options.validate();
  if (resume && overwrite) throw UsageError("[train] resume goes on with a run, overwrite replaces it; choose one");
  TokenizerChoice choice = tokenizer_of(tokenizer);
  if (!from.empty()) choice.like = from;

  Callbacks callbacks(on_progress);
  std::optional<LanguageModel> model;
  TrainResult result;
  TrainingData data;
  std::string warning;
  {
    const nb::gil_scoped_release others_run;
    if (!out.empty() && !resume && !overwrite) check_folder_is_free(out);
    data = training_data(texts, valid, choice, {}, field);
    options.check_text(static_cast<int64_t>(data.train.tokens.size()));
    warning = held_out_warning(data);
    model.emplace(begin(from, preset_name, position, dropout, shape, options.length, options.seed, data.tokenizer));
    TrainRun run;
    run.folder = out;
    run.resume = resume;
    run.overwrite = overwrite;
    run.valid = data.valid.tokens;
    bool go_on = true;
    run.on_step = [&](const TrainStatus& status) {
      go_on = callbacks.call([&] { return status_of(status); }) && go_on;
    };
    run.should_stop = [&] { return !go_on || !callbacks.look_for_signals(); };
    result = train(*model, data.train.tokens, options, run);
    model->release_training_memory();
    if (!out.empty() && result.end != TrainEnd::asked) model->save(out);
  }
  callbacks.rethrow();
  nb::list evaluations;
  for (const TrainEvaluation& evaluation : result.evaluations) {
    evaluations.append(nb::make_tuple(evaluation.step, evaluation.loss));
  }
  nb::dict trained;
  trained["warning"] = warning;
  trained["tokens"] = result.tokens;
  trained["steps"] = result.steps;
  trained["seconds"] = result.seconds;
  trained["tokens_per_second"] = result.tokens_per_second;
  trained["loss"] = array_of(std::move(result.loss));
  trained["evaluations"] = nb::tuple(evaluations);
  trained["end"] = name_of_end(result.end);
  trained["train_length"] = options.length;
  trained["train_bytes"] = data.train_bytes;
  trained["valid_bytes"] = data.valid_bytes;
  trained["valid_tokens"] = array_of(std::vector<int32_t>(data.valid.tokens.begin(), data.valid.tokens.end()));
  return nb::make_tuple(nb::cast(std::move(*model)), trained);
}

}  // namespace

void bind_training(nb::module_& m) {
  m.def("train", train_model, "texts"_a, "valid"_a, "field"_a, "tokenizer"_a, "from_model"_a, "preset"_a, "position"_a,
        "dropout"_a.none(), "options"_a, "out"_a, "resume"_a, "overwrite"_a, "on_progress"_a.none());
}

}  // namespace alibi::python
