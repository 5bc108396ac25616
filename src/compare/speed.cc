#include "compare/speed.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "model/position.h"
#include "report/json.h"

namespace alibi::comparison {
namespace {

constexpr double kSeconds = 0.3;  // minimum duration of one kind of work in a round; the work is at least one unit
constexpr const char* kNote = "speed";

/// Wall time and processor time for a number of tokens.
struct Timing {
  double tokens = 0, wall = 0, cpu = 0;
};

class Stopwatch {
 public:
  Timing read(int64_t tokens) const {
    return {static_cast<double>(tokens), core::seconds_since(wall_),
            static_cast<double>(std::clock() - cpu_) / CLOCKS_PER_SEC};
  }

 private:
  core::Clock::time_point wall_ = core::Clock::now();
  std::clock_t cpu_ = std::clock();
};

/// One method that takes part in the rounds.
class Entrant {
 public:
  Entrant(const RunSetting& setting, const RunResults& run, bool all_keys)
      : setting_(setting), folder_(setting.store.path_of(run)) {
    speed_.method = run.method;
    speed_.all_keys = all_keys;
    add_work("train", run.train_length, run.train_tokens_per_second);
    for (const EvaluationPoint& point : run.evaluations) {
      if (point.length != run.train_length && &point != &run.evaluations.back()) continue;
      add_work("eval", point.length, point.tokens_per_second);
    }
  }

  /// Loads the model for this round only, because all models together may not fit in memory.
  void run_round() {
    LanguageModel model = LanguageModel::load(folder_);
    if (speed_.all_keys) {
      model = model.sharing_weights([](LanguageModelConfig& config) { config.transformer.attention.tolerance = 0; });
    }
    for (Work& work : works_) {
      if (!work.can_run) continue;
      work.rounds.push_back(work.name == "train" ? train_some(model, work) : evaluate_some(model, work));
    }
  }

  MethodSpeed result() && {
    for (Work& work : works_) {
      SpeedPoint point{work.name, work.length, NAN, NAN, NAN, std::ssize(work.rounds)};
      if (!work.rounds.empty()) {
        std::sort(work.rounds.begin(), work.rounds.end(),
                  [](const Timing& a, const Timing& b) { return a.wall < b.wall; });
        const Timing& median = work.rounds[work.rounds.size() / 2];
        point.tokens_per_second = median.tokens / median.wall;
        point.cpu_seconds = 1e6 * median.cpu / median.tokens;
        point.spread = work.rounds.back().wall / work.rounds.front().wall;
      }
      speed_.points.push_back(std::move(point));
    }
    return std::move(speed_);
  }

 private:
  struct Work {
    std::string name;
    int64_t length = 0;
    bool can_run = true;
    int64_t tokens = 0;  // tokens per round, in whole units
    std::vector<Timing> rounds = {};
  };

  void add_work(const char* name, int64_t length, double tokens_per_second) {
    Work work{name, length, std::isfinite(tokens_per_second) && tokens_per_second > 0};
    const bool trains = work.name == "train";
    const int64_t unit = trains ? setting_.options.train.batch_tokens : length;
    const auto all =
        static_cast<int64_t>(trains ? setting_.data.train.tokens.size() : setting_.data.valid.tokens.size());
    const double units = kSeconds * tokens_per_second / static_cast<double>(unit);
    if (work.can_run)
      work.tokens = unit * std::clamp<int64_t>(std::llround(units), 1, std::max<int64_t>(1, all / unit));
    works_.push_back(std::move(work));
  }

  /// The first update is not timed, because it allocates memory.
  Timing train_some(LanguageModel& model, const Work& work) const {
    TrainOptions train_options = setting_.options.train;
    train_options.train_length = work.length;
    train_options.train_tokens = work.tokens + train_options.batch_tokens;
    std::optional<Stopwatch> watch;
    Timing timing;
    int64_t first = 0;
    train(model, setting_.data.train.tokens, train_options, [&](const TrainStatus& status) {
      if (!watch) {
        watch.emplace();
        first = status.tokens;
      } else {
        timing = watch->read(status.tokens - first);
      }
    });
    model.release_training_memory();
    return timing;
  }

  Timing evaluate_some(const LanguageModel& model, const Work& work) const {
    const std::span<const int32_t> tokens = setting_.data.valid.tokens;
    const std::span<const int32_t> some = tokens.first(std::min(tokens.size(), static_cast<size_t>(work.tokens)));
    const Stopwatch watch;
    evaluate(model, some, {.length = work.length});
    return watch.read(static_cast<int64_t>(some.size()));
  }

  const RunSetting& setting_;
  std::filesystem::path folder_;
  MethodSpeed speed_;
  std::vector<Work> works_;
};

bool skips_keys(const RunSetting& setting, const RunResults& run) {
  const TransformerConfig config =
      model_config(setting.options, position_from(run.method), run.train_length, nullptr).transformer;
  return model::Positions(config).bias->bounds_far_keys() && config.attention.tolerance > 0;
}

/// The first run of each method at the shortest training length.
std::vector<RunResults> first_runs(const std::vector<RunResults>& runs) {
  std::vector<RunResults> first;
  for (const RunResults& run : runs) {
    const bool is_first = run.seed == runs.front().seed && run.train_length == runs.front().train_length;
    if (is_first && run.diverged.empty()) first.push_back(run);
  }
  return first;
}

}  // namespace

std::optional<std::vector<MethodSpeed>> measure_speed(const RunSetting& setting, const std::vector<RunResults>& runs,
                                                      const RunProgress& progress) {
  const int64_t rounds = setting.options.timing_rounds;
  if (rounds == 0 || !setting.store.keeps() || runs.empty()) return std::vector<MethodSpeed>{};
  const std::vector<RunResults> first = first_runs(runs);
  std::vector<Entrant> entrants;
  std::vector<std::string> names;
  for (const RunResults& run : first) {
    names.push_back(MethodSpeed{run.method, false, {}}.name());
    if (skips_keys(setting, run)) names.push_back(MethodSpeed{run.method, true, {}}.name());
  }
  const std::optional<formats::JsonObject> known = setting.store.load_note(kNote);
  if (known && known->get<std::vector<std::string>>("names") == names) {
    check(known->has("speed"), "[compare] {}speed is missing", known->where());
    return report::speed_from_json(known->raw().at("speed"), known->where() + "note");
  }
  for (const RunResults& run : first) {
    entrants.emplace_back(setting, run, false);
    if (skips_keys(setting, run)) entrants.emplace_back(setting, run, true);
  }
  for (int64_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < entrants.size(); ++i) {
      if (setting.options.should_stop && setting.options.should_stop()) return {};
      CompareStatus status;
      status.phase = "speed";
      const int64_t count = std::ssize(entrants), done = round * count + static_cast<int64_t>(i);
      status.fraction = static_cast<double>(done) / static_cast<double>(rounds * count);
      progress(status, 0);
      entrants[i].run_round();
    }
  }
  std::vector<MethodSpeed> speeds;
  for (Entrant& entrant : entrants) speeds.push_back(std::move(entrant).result());
  setting.store.save_note(kNote, {{"names", names}, {"speed", report::to_json(speeds)}});
  return speeds;
}

}  // namespace alibi::comparison
