// Training a language model on text.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "alibi/hub.h"
#include "alibi/model_recipe.h"
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
  constexpr const char* names[] = {"all_tokens", "no_gain", "asked"};
  return names[static_cast<size_t>(end)];
}

nb::object train_model(const std::vector<std::string>& texts, const std::vector<std::string>& valid,
                       const std::string& field, const nb::dict& tokenizer, const std::string& from,
                       const std::string& preset_name, const std::string& position, std::optional<float> dropout,
                       nb::dict given, const std::string& out, bool resume, bool overwrite, nb::handle on_progress) {
  TrainOptions options = training_defaults(preset_name);
  const bool own_batch = given.contains("batch_tokens");
  std::optional<Precision> resumed;
  if (resume && !out.empty()) {
    if (const std::optional<CheckpointInfo> found = newest_checkpoint(out)) resumed = found->precision;
  }
  ModelOptions model_options = take_options(options, given, resumed, "train");
  if (!own_batch) options.batch_tokens = std::min(options.batch_tokens, options.train_tokens);
  ModelRecipe recipe{.preset = preset_name,
                     .position = position_from(position),
                     .options = std::move(model_options),
                     .dropout = dropout,
                     .from = find_model(from),
                     .tokenizer = tokenizer_of(tokenizer)};
  if (!from.empty() && (!recipe.options.empty() || dropout)) {
    throw UsageError("[train] from_model takes the shape from the model; leave out the options of the model");
  }
  options.validate();
  if (resume && overwrite) throw UsageError("[train] resume continues a run and overwrite replaces it; choose one");

  Callbacks callbacks(on_progress);
  TrainingData data;
  std::string warning;
  LanguageModel model = computed(callbacks, [&] {
    if (!out.empty() && !resume && !overwrite) check_folder_is_free(out);
    data = recipe.read_text(texts, valid, {}, field);
    options.check_text(static_cast<int64_t>(data.train.tokens.size()));
    warning = held_out_warning(data);
    return recipe.model(options.train_length, data.tokenizer, options.seed);
  });
  TrainResult result;
  {  // without an InterruptScope: an update is not ended in the middle, so that a checkpoint can be written
    const WithoutLock others_run;
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
    result = train(model, data.train.tokens, options, run);
    model.release_training_memory();
    if (!out.empty() && result.end != TrainEnd::asked) model.save(out);
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
  trained["train_length"] = options.train_length;
  trained["train_bytes"] = data.train_bytes;
  trained["valid_bytes"] = data.valid_bytes;
  trained["valid_tokens"] = array_of(std::vector<int32_t>(data.valid.tokens.begin(), data.valid.tokens.end()));
  return nb::make_tuple(nb::cast(std::move(model)), trained);
}

}  // namespace

void bind_training(nb::module_& m) {
  m.def("train", train_model, "texts"_a, "valid"_a, "field"_a, "tokenizer"_a, "from_model"_a, "preset"_a, "position"_a,
        "dropout"_a.none(), "options"_a, "out"_a, "resume"_a, "overwrite"_a, "on_progress"_a.none());
}

}  // namespace alibi::python
