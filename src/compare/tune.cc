#include "compare/tune.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "core/check.h"

namespace alibi::comparison {
namespace {

constexpr int64_t kMostScored = 65536;

/// Returns the loss after training at this rate, or nothing if it was stopped.
std::optional<double> trial(const RunSetting& setting, Position method, double rate,
                            const std::function<void(const TrainStatus&)>& on_step) {
  const CompareOptions& options = setting.options;
  const std::span<const int32_t> tokens = setting.data.train.tokens;
  const auto all = static_cast<int64_t>(tokens.size()), trained = all - all / 10;
  TrainOptions train_options = options.train;
  train_options.learning_rate = rate;
  TrainRun run;
  run.on_step = on_step;
  run.should_stop = options.should_stop;
  LanguageModel model(model_config(options, method, train_options.train_length, setting.data.tokenizer.get()),
                      train_options.seed, setting.data.tokenizer);
  try {
    const TrainResult result = train(model, tokens.first(static_cast<size_t>(trained)), train_options, run);
    if (result.end == TrainEnd::asked) return {};
    EvaluateOptions evaluate_options;
    evaluate_options.length = train_options.train_length;
    evaluate_options.segments = {{trained, std::min(all, trained + kMostScored)}};
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

Tuning tune(const RunSetting& setting, Position method, const RunProgress& progress) {
  Tuning tuning{method, setting.options.tune_rates, {}};
  const std::string note = std::string("tune-") + name_of(method);
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
  for (size_t i = tuning.nll.size(); i < tuning.rates.size(); ++i) {
    const std::optional<double> nll = trial(setting, method, tuning.rates[i], [&](const TrainStatus& train_status) {
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
