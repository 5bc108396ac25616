#include "compare/tune.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "core/check.h"
#include "report/statistics.h"
#include "train/train_over.h"

namespace alibi::comparison {
namespace {

constexpr int64_t kMaxScored = 65536;

/// Returns the loss after training at this rate, or nothing if it was stopped.
std::optional<double> trial(const CompareOptions& options, const TaskData& data, const TrainOptions& train_options,
                            Position method, const std::function<void(const TrainStatus&)>& on_step) {
  const std::span<const int32_t> tokens = data.data.train.tokens;
  const bool is_task = !data.scored.empty();
  const auto all = static_cast<int64_t>(tokens.size()), trained = is_task ? all : all - all / 10;
  TrainRun run;
  run.on_step = on_step;
  run.should_stop = options.should_stop;
  LanguageModel model(model_config(options, method, train_options.train_length, data.data.tokenizer.get()),
                      train_options.seed, data.data.tokenizer);
  try {
    const TrainResult result = training::train_over(nullptr, model, tokens.first(static_cast<size_t>(trained)),
                                                    train_options, run, data.scored);
    if (result.end == TrainEnd::asked) return {};
    if (is_task) {
      const std::vector<double> loss(result.loss.end() - std::max<int64_t>(1, std::ssize(result.loss) / 10),
                                     result.loss.end());
      return report::mean_of(loss);
    }
    EvaluateOptions evaluate_options;
    evaluate_options.length = train_options.train_length;
    evaluate_options.segments = {{trained, std::min(all, trained + kMaxScored)}};
    return evaluate(model, tokens, evaluate_options).nll();
  } catch (const NotFiniteError&) {
    return std::numeric_limits<double>::infinity();
  }
}

}  // namespace

double Tuning::best() const {
  return rates[static_cast<size_t>(std::min_element(nll.begin(), nll.end()) - nll.begin())];
}

bool Tuning::is_at_an_end() const { return best() == rates.front() || best() == rates.back(); }

Tuning tune(const RunSetting& setting, const TaskFillers& fillers, Position method, const std::string& task,
            const RunProgress& progress) {
  Tuning tuning{method, task, setting.options.tune_rates, {}};
  const std::string note = std::string("tune-") + (task.empty() ? "" : task + "-") + name_of(method);
  if (const std::optional<formats::JsonObject> known = setting.store.load_note(note)) {
    check(
        known->has("nll") && known->raw().at("nll").is_array() && known->raw().at("nll").size() <= tuning.rates.size(),
        "[compare] {}nll is missing or is not a list, expected a list of up to {} numbers", known->where(),
        tuning.rates.size());
    for (const formats::Json& value : known->raw().at("nll")) {
      check(value.is_null() || value.is_number(), "[compare] {}nll contains {}, expected numbers or null",
            known->where(), value.type_name());
      tuning.nll.push_back(value.is_null() ? std::numeric_limits<double>::infinity() : value.get<double>());
    }
  }
  if (tuning.nll.size() == tuning.rates.size()) return tuning;
  TrainOptions train = setting.options.train;
  if (!task.empty()) train = task_training(train, setting.options.task_tokens);
  const TaskData data =
      task.empty() ? TaskData{setting.data, {}}
                   : task_data(task_from(task), {train.train_length, fillers.train}, train.train_tokens, train.seed);
  for (size_t i = tuning.nll.size(); i < tuning.rates.size(); ++i) {
    train.learning_rate = tuning.rates[i];
    const std::optional<double> nll = trial(setting.options, data, train, method, [&](const TrainStatus& train_status) {
      CompareStatus status;
      status.phase = "tune";
      status.train = train_status;
      const double of_trial = static_cast<double>(train_status.step) / static_cast<double>(train_status.steps);
      status.fraction = (static_cast<double>(i) + of_trial) / static_cast<double>(tuning.rates.size());
      progress(status, 0);
    });
    if (!nll) return tuning;
    tuning.nll.push_back(*nll);
    setting.store.save_note(note, {{"rates", tuning.rates}, {"nll", tuning.nll}});  // infinity is stored as null
  }
  return tuning;
}

}  // namespace alibi::comparison
