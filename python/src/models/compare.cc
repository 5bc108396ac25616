// Train short, test long.
#include "alibi/compare.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "models/callbacks.h"
#include "models/convert.h"

namespace alibi::python {
namespace {

using namespace nb::literals;

nb::dict status_of(const CompareStatus& status) {
  nb::dict result;
  result["phase"] = status.phase;
  result["method"] = status.method;
  result["task"] = status.task;
  result["run"] = status.run;
  result["runs"] = status.runs;
  result["step"] = status.train.step;
  result["steps"] = status.train.steps;
  result["tokens"] = status.train.tokens;
  result["loss"] = status.phase == "train" ? status.train.loss : std::nan("");
  result["tokens_per_second"] = status.train.tokens_per_second;
  result["length"] = status.length;
  result["fraction"] = status.fraction;
  result["seconds"] = status.seconds;
  result["seconds_left"] = status.seconds_left;
  return result;
}

nb::list points_of(const std::vector<EvaluationPoint>& points) {
  nb::list list;
  for (const EvaluationPoint& point : points) {
    nb::dict entry;
    entry["length"] = point.length;
    entry["stride"] = point.stride;
    entry["tokens"] = point.tokens;
    entry["gap"] = point.gap;
    const bool there = point.gap.empty();
    entry["nll"] = there ? point.nll : std::nan("");
    entry["perplexity"] = there ? point.perplexity : std::nan("");
    entry["bits_per_byte"] = there ? point.bits_per_byte : std::nan("");
    entry["tokens_per_second"] = there ? point.tokens_per_second : std::nan("");
    entry["low"] = point.interval.low;
    entry["high"] = point.interval.high;
    list.append(entry);
  }
  return list;
}

nb::dict method_of(const MethodResults& method) {
  nb::list loss;
  for (const LossPoint& point : method.loss) loss.append(nb::make_tuple(point.step, point.tokens, point.loss));
  nb::dict result;
  result["name"] = method.name;
  result["method"] = method.method;
  result["train_length"] = method.train_length;
  result["seeds"] = nb::cast(method.seeds);
  result["parameters"] = method.parameters;
  result["train_tokens"] = method.train_tokens;
  result["learning_rate"] = method.learning_rate;
  result["train_seconds"] = method.train_seconds;
  result["train_tokens_per_second"] = method.train_tokens_per_second;
  result["loss"] = loss;
  result["evaluations"] = points_of(method.evaluations);
  result["sliding"] = points_of(method.sliding);
  result["streaming"] = points_of(method.streaming);
  result["sample_prompt"] = text_of(method.sample_prompt);
  result["sample"] = text_of(method.sample);
  result["model_folder"] = method.model_folder;
  return result;
}

nb::dict task_of(const TaskResults& task) {
  nb::list methods;
  for (const MethodResults& method : task.methods) {
    nb::list points;
    for (const AnswerPoint& point : method.task.points) {
      nb::dict entry;
      entry["length"] = point.length;
      entry["distance"] = point.distance;
      entry["questions"] = point.questions;
      entry["accuracy"] = point.accuracy();
      entry["low"] = point.interval.low;
      entry["high"] = point.interval.high;
      points.append(entry);
    }
    nb::dict answers;
    answers["name"] = method.name;
    answers["method"] = method.method;
    answers["train_length"] = method.train_length;
    answers["seeds"] = nb::cast(method.seeds);
    answers["largest_length"] = method.largest_length;
    answers["largest_distance"] = method.largest_distance;
    answers["points"] = points;
    methods.append(answers);
  }
  nb::dict result;
  result["name"] = task.task.name;
  result["meaning"] = task.task.meaning;
  result["chance"] = task.task.chance;
  result["beside_text"] = task.beside_text;
  result["methods"] = methods;
  return result;
}

nb::dict results_of(const CompareResults& results) {
  nb::list methods, tasks;
  for (const MethodResults& method : results.methods) methods.append(method_of(method));
  for (const TaskResults& task : results.tasks) tasks.append(task_of(task));
  nb::dict settings;
  for (const auto& [name, value] : results.settings) settings[name.c_str()] = value;
  nb::dict result;
  result["methods"] = methods;
  result["tasks"] = tasks;
  result["train_length"] = results.train_length;
  result["seed"] = results.seed;
  result["preset"] = results.preset;
  result["train_bytes"] = results.train_bytes;
  result["valid_bytes"] = results.valid_bytes;
  result["tokenizer"] = results.tokenizer;
  result["vocab_size"] = results.vocab_size;
  result["runs_done"] = results.runs_done();
  result["runs_planned"] = results.runs_planned;
  result["machine"] = results.machine;
  result["threads"] = results.threads;
  result["version"] = results.version;
  result["started"] = results.started;
  result["seconds"] = results.seconds;
  result["settings"] = settings;
  return result;
}

nb::dict compare_methods(const std::vector<std::string>& texts, const std::vector<std::string>& valid,
                         const std::string& field, const nb::dict& tokenizer,
                         const std::optional<std::vector<std::string>>& positions, const std::string& preset_name,
                         std::optional<float> dropout, int64_t seeds, std::vector<int64_t> train_lengths,
                         std::vector<int64_t> lengths, int64_t stride, bool one_pass,
                         const std::vector<std::string>& windowed, int64_t eval_tokens, int64_t sample_tokens,
                         const std::vector<std::string>& tasks, int64_t task_tokens, int64_t task_questions,
                         double task_share, int64_t timing_rounds, std::vector<double> tune_rates, nb::dict given,
                         const std::string& out, bool overwrite, nb::handle on_progress) {
  CompareOptions options = compare_defaults(preset_name);
  options.texts = texts;
  options.valid = valid;
  options.field = field;
  options.tokenizer = tokenizer_of(tokenizer);
  if (positions) {
    options.positions.clear();
    for (const std::string& name : *positions) options.positions.push_back(position_from(name));
  }
  options.dropout = dropout;
  options.seeds = seeds;
  options.train_lengths = std::move(train_lengths);
  options.lengths = std::move(lengths);
  options.stride = stride;
  options.one_pass = one_pass;
  for (const std::string& name : windowed) options.windowed.push_back(position_from(name));
  options.eval_tokens = eval_tokens;
  options.sample_tokens = sample_tokens;
  options.tasks = tasks;
  options.task_tokens = task_tokens;
  options.task_questions = task_questions;
  options.task_share = task_share;
  options.timing_rounds = timing_rounds;
  options.tune_rates = std::move(tune_rates);
  options.out = out;
  options.overwrite = overwrite;
  options.command = "alibi.compare(...)";
  const bool own_batch = given.contains("batch_tokens");
  options.model = take_options(options.train, given, overwrite ? std::nullopt : compared_precision(out), "compare");
  if (!own_batch) options.train.batch_tokens = std::min(options.train.batch_tokens, options.train.train_tokens);

  Callbacks callbacks(on_progress);
  CompareResults results;
  std::string warning;
  options.on_warning = [&](std::string_view message) { warning = message; };
  bool go_on = true, is_reading = true;
  options.should_stop = [&] {
    is_reading = false;
    return !go_on || !callbacks.look_for_signals();
  };
  try {
    const WithoutLock others_run;
    const InterruptScope scope([&] {  // for the reading of the text; training ends with a checkpoint
      if (is_reading && !callbacks.look_for_signals()) throw Stopped{};
    });
    results = compare(options, [&](const CompareStatus& status) {
      go_on = callbacks.call([&] { return status_of(status); }) && go_on;
    });
  } catch (const Stopped&) {
  }
  callbacks.rethrow();
  nb::dict found = results_of(results);
  found["warning"] = warning;
  return found;
}

}  // namespace

void bind_compare(nb::module_& m) {
  m.def("compare", compare_methods, "texts"_a, "valid"_a, "field"_a, "tokenizer"_a, "positions"_a.none(), "preset"_a,
        "dropout"_a.none(), "seeds"_a, "train_lengths"_a, "lengths"_a, "stride"_a, "one_pass"_a, "windowed"_a,
        "eval_tokens"_a, "sample_tokens"_a, "tasks"_a, "task_tokens"_a, "task_questions"_a, "task_share"_a,
        "timing_rounds"_a, "tune_rates"_a, "options"_a, "out"_a, "overwrite"_a, "on_progress"_a.none());
}

}  // namespace alibi::python
