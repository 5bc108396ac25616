#include "alibi/compare.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

#include "alibi/results.h"
#include "alibi/runtime.h"
#include "alibi/training_data.h"
#include "alibi/version.h"
#include "compare/bigram.h"
#include "compare/compare_over.h"
#include "compare/held_out.h"
#include "compare/options.h"
#include "compare/report_settings.h"
#include "compare/run.h"
#include "compare/run_store.h"
#include "compare/speed.h"
#include "compare/task_run.h"
#include "compare/tune.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/files.h"
#include "model/config_fields.h"
#include "model/position.h"
#include "report/html.h"
#include "report/summarize.h"
#include "text/corpus.h"
#include "train/described.h"
#include "train/identity.h"

namespace alibi {
namespace {

std::string utc_now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

/// All settings that the results of a run depend on, except its method, seed and training length.
formats::OrderedJson identity_of(const CompareOptions& options, const TrainingData& data) {
  formats::OrderedJson identity;
  for (const formats::Option<TrainOptions>& option : formats::options_of<TrainOptions>) {
    const std::string_view name = option.name;
    if (option.changes_result && name != "train_length" && name != "seed") {
      identity[option.name] = formats::json_of(option.get(options.train));
    }
  }
  identity["preset"] = options.preset;
  for (const model::ConfigField& field : formats::options_of<LanguageModelConfig>) {
    const OptionValue* given = options.model.find(field.name);
    if (given || !field.default_text)
      identity[field.name] = formats::json_of(given ? *given : training::default_of(field));
  }
  identity["dropout"] = options.dropout ? formats::OrderedJson(*options.dropout) : formats::OrderedJson(nullptr);
  if (data.tokenizer) {
    identity["tokenizer"] = data.tokenizer->fingerprint();
    identity["text"] = training::fingerprint(data.train.tokens);
    identity["held_out_text"] = training::fingerprint(data.valid.tokens);
  }
  if (!options.tasks.empty()) {
    identity["task_tokens"] = options.task_tokens;
    identity["task_questions"] = options.task_questions;
  }
  if (options.task_share > 0) {
    identity["task_share"] = options.task_share;
    identity["tasks"] = options.tasks;
  }
  identity["lengths"] = options.lengths;
  identity["stride"] = options.stride;
  identity["one_pass"] = options.one_pass;
  if (options.interpolation) identity["interpolation"] = model::interpolation_json(*options.interpolation);
  if (!options.windowed.empty()) identity["windowed"] = comparison::names_of(options.windowed);
  identity["tune_rates"] = options.tune_rates;
  identity["eval_tokens"] = options.eval_tokens;
  identity["sample_tokens"] = options.sample_tokens;
  return identity;
}

class Comparison {
 public:
  /// `group` is null if there are no other ranks.
  Comparison(const CompareOptions& options, const std::function<void(const CompareStatus&)>& on_status,
             ranks::Group* group)
      : options_(options), on_status_(on_status), group_(group) {}

  CompareResults run();

 private:
  void read_text();
  std::vector<RunResults> planned_runs() const;
  bool is_first_rank() const { return group_ == nullptr || group_->rank() == 0; }
  /// Whether this rank does the piece of work with this index.
  bool is_own(size_t index) const {
    return group_ == nullptr || static_cast<int>(index % static_cast<size_t>(group_->size())) == group_->rank();
  }
  /// Waits for the other ranks. Returns whether all have done their work.
  bool all_done(bool done) const;
  bool tune_methods(const comparison::RunSetting& setting);
  bool do_runs(const comparison::RunSetting& setting, const std::vector<RunResults>& planned,
               std::vector<RunResults>& done);
  comparison::StoredRun finish(const comparison::RunSetting& setting, comparison::StoredRun run);
  TrainOptions train_options(const RunResults& run) const;
  CompareResults results_of(const std::vector<RunResults>& done, size_t planned) const;
  void write(const CompareResults& results) const;
  void report(CompareStatus status, double run_fraction) const;
  double seconds() const { return core::seconds_since(start_); }

  CompareOptions options_;
  const std::function<void(const CompareStatus&)>& on_status_;
  ranks::Group* group_;
  core::Clock::time_point start_ = core::Clock::now();
  std::string started_ = utc_now();
  TrainingData data_;  // without a tokenizer if there is no text
  comparison::TaskFillers fillers_;
  std::string warning_;  // warning about the text
  std::string corpus_name_;
  comparison::HeldOutPlan plan_;
  HeldOut held_out_;
  std::vector<comparison::Tuning> tunings_;  // one for each method and task, if rates are tuned
  CompareStatus at_;                         // the run in progress
  int64_t runs_done_here_ = 0;               // runs finished by this call, for the estimate of the remaining time
};

void Comparison::read_text() {
  if (!comparison::has_text(options_)) return;
  if (options_.texts.empty()) {
    options_.texts = text::default_corpus();
    corpus_name_ = fmt::format("the C++ headers of this machine ({})", fmt::join(options_.texts, ", "));
  } else {
    corpus_name_ = fmt::format("{}", fmt::join(options_.texts, ", "));
  }
  const auto progress = [&](std::string_view work, double fraction) {
    CompareStatus status;
    status.phase = work;
    status.fraction = fraction;
    report(status, 0);
  };
  data_ = training_data(options_.texts, options_.valid, options_.tokenizer, progress, options_.field);
  check_usage(options_.task_share == 0 || data_.tokenizer->kind() == "byte",
              "[compare] the tokenizer is {}, expected byte with a share of tasks, because tasks consist of bytes",
              data_.tokenizer->kind());
  warning_ = held_out_warning(data_);
  const std::string skipped = describe_skipped(data_.files);
  for (const std::string& warning : {skipped, warning_}) {
    if (!warning.empty() && options_.on_warning) options_.on_warning(warning);
  }
  for (const int64_t length : options_.train_lengths) {
    TrainOptions train = options_.train;
    train.train_length = length;
    train.check_text(static_cast<int64_t>(data_.train.tokens.size()));
  }
  const int64_t stream = std::ssize(data_.valid.tokens), scored = std::min(stream, options_.eval_tokens);
  check(scored >= options_.lengths.back(),
        "[compare] the number of held-out tokens to score is {}, expected at least the longest length, {}; give more "
        "text with --valid, a larger --eval-tokens or shorter --lengths",
        scored, options_.lengths.back());
  fillers_ = comparison::task_fillers(data_);
  plan_ = comparison::plan_held_out(stream, options_.eval_tokens, options_.train.train_length, options_.lengths.back());
  held_out_ = comparison::describe(data_, plan_.blocks);
  held_out_.bigram_nll =
      comparison::bigram_nll(data_.train.tokens, data_.valid.tokens, plan_.blocks, data_.tokenizer->vocab_size());
}

/// All methods run with one seed before the next seed starts, so that a complete comparison is available early.
std::vector<RunResults> Comparison::planned_runs() const {
  std::vector<RunResults> runs;
  for (int64_t seed = 0; seed < options_.seeds; ++seed) {
    for (const int64_t length : options_.train_lengths) {
      for (const Position method : options_.positions) {
        RunResults run;
        run.method = name_of(method);
        run.train_length = length;
        run.seed = options_.train.seed + static_cast<uint64_t>(seed);
        std::vector<TaskAnswers> answers;
        for (const std::string& name : options_.tasks) {
          const comparison::Task& task = comparison::task_from(name);
          answers.push_back({.name = name, .meaning = task.meaning, .chance = task.chance, .points = {}});
        }
        if (options_.task_share > 0) run.answers = answers;
        if (comparison::has_text(options_)) runs.push_back(run);
        if (options_.task_share > 0) continue;
        for (const TaskAnswers& task : answers) {
          run.task = task;
          runs.push_back(run);
        }
      }
    }
  }
  return runs;
}

bool Comparison::all_done(bool done) const {
  if (group_ == nullptr) return done;
  const std::vector<double> all = ranks::all_gather(*group_, done ? 1 : 0);
  return std::all_of(all.begin(), all.end(), [](double one) { return one == 1; });
}

/// Returns false if it was stopped.
bool Comparison::tune_methods(const comparison::RunSetting& setting) {
  const auto is_complete = [&](const comparison::Tuning& tuning) {
    return tuning.nll.size() == options_.tune_rates.size();
  };
  std::vector<std::string> tasks;
  if (options_.task_share == 0) tasks = options_.tasks;
  if (comparison::has_text(options_)) tasks.insert(tasks.begin(), "");
  const size_t count = options_.positions.size() * tasks.size();
  const auto tuned = [&](size_t index) {
    const Position method = options_.positions[index / tasks.size()];
    at_.method = name_of(method);
    at_.task = tasks[index % tasks.size()];
    return comparison::tune(setting, fillers_, method, at_.task,
                            [&](const CompareStatus& status, double fraction) { report(status, fraction); });
  };
  if (options_.tune_rates.empty()) return true;
  if (group_ != nullptr) {
    bool done = true;
    for (size_t i = 0; i < count && done; ++i) {
      if (is_own(i)) done = is_complete(tuned(i));
    }
    if (!all_done(done)) return false;
  }
  for (size_t i = 0; i < count; ++i) {  // reads what was saved
    tunings_.push_back(tuned(i));
    if (!is_complete(tunings_.back())) return false;
  }
  return true;
}

TrainOptions Comparison::train_options(const RunResults& run) const {
  TrainOptions train = options_.train;
  train.train_length = run.train_length;
  train.seed = run.seed;
  for (const comparison::Tuning& tuning : tunings_) {
    if (name_of(tuning.method) == run.method && tuning.task == run.task.name) train.learning_rate = tuning.best();
  }
  const bool has_tasks = !run.task.name.empty() || options_.task_share > 0;
  return has_tasks ? comparison::task_training(train, options_.task_tokens) : train;
}

void Comparison::report(CompareStatus status, double run_fraction) const {
  if (!on_status_) return;
  status.method = at_.method;
  status.task = at_.task;
  status.train_length = at_.train_length;
  status.seed = at_.seed;
  status.run = at_.run;
  status.runs = at_.runs;
  status.seconds = seconds();
  const double done = static_cast<double>(runs_done_here_) + run_fraction;
  const double left = static_cast<double>(at_.runs - at_.run) - run_fraction;
  status.seconds_left = done > 0.01 ? status.seconds * left / done : 0;
  on_status_(status);
}

CompareResults Comparison::results_of(const std::vector<RunResults>& done, size_t planned) const {
  const TrainOptions& t = options_.train;
  CompareResults results;
  results.train_length = t.train_length;
  results.seed = t.seed;
  results.threads = threads();
  results.preset = options_.preset;
  if (data_.tokenizer) {
    results.tokenizer = data_.tokenizer->kind();
    results.vocab_size = data_.tokenizer->vocab_size();
  }
  results.train_bytes = data_.train_bytes;
  results.valid_bytes = data_.valid_bytes;
  results.train_files = data_.train_files;
  results.valid_files = data_.valid_files;
  results.held_out = held_out_;
  results.corpus_name = corpus_name_;
  report::take_runs(results, done);
  if (!done.empty()) results.parameters = done.front().parameters;
  results.runs_planned = static_cast<int64_t>(planned);
  results.command = options_.command;
  results.machine = fmt::format("{}, {} threads, {}", cpu_name(), threads(), name_of(isa()));
  results.version = version;
  results.started = started_;
  results.seconds = seconds();
  const Tokenizer* tokenizer = data_.tokenizer.get();
  results.advised_tokens = training_defaults(options_.preset).train_tokens;
  results.notes = comparison::rate_notes(options_);
  results.settings = comparison::report_settings(
      options_, comparison::model_config(options_, options_.positions.front(), t.train_length, tokenizer), data_,
      corpus_name_, plan_, tunings_);
  if (!warning_.empty()) results.settings.emplace_back("Warning", warning_);
  return results;
}

void Comparison::write(const CompareResults& results) const {
  if (!options_.out.empty()) report::write_report(results, options_.out);
}

/// Does what is missing of a run, on text or on its task.
comparison::StoredRun Comparison::finish(const comparison::RunSetting& setting, comparison::StoredRun run) {
  const comparison::RunProgress progress = [&](const CompareStatus& status, double fraction) {
    report(status, fraction);
  };
  const TrainOptions train = train_options(run.results);
  const bool has_tasks = !run.results.task.name.empty() || !run.results.answers.empty();
  if (!has_tasks) return comparison::run_to_end(setting, train, std::move(run), progress);
  return comparison::run_with_tasks(setting, fillers_, train, std::move(run), progress);
}

/// Returns false if it was stopped.
bool Comparison::do_runs(const comparison::RunSetting& setting, const std::vector<RunResults>& planned,
                         std::vector<RunResults>& done) {
  for (size_t i = 0; i < planned.size(); ++i) {
    if (!is_own(i)) continue;
    const RunResults& begun = planned[i];
    at_.method = begun.method;
    at_.task = begun.task.name;
    at_.train_length = begun.train_length;
    at_.seed = begun.seed;
    at_.run = static_cast<int64_t>(i);
    at_.runs = static_cast<int64_t>(planned.size());
    comparison::StoredRun run = setting.store.load(begun);
    const bool was_done = run.done;
    if (!was_done) {
      run = finish(setting, std::move(run));
      if (!run.done) return false;
      ++runs_done_here_;
    }
    done.push_back(std::move(run.results));
    if (group_ == nullptr && !was_done && done.size() < planned.size()) write(results_of(done, planned.size()));
  }
  return true;
}

CompareResults Comparison::run() {
  comparison::complete_options(options_);
  check_usage(group_ == nullptr || !options_.out.empty(),
              "[compare] ranks exchange their results through a folder, and there is none; give one");
  comparison::RunStore store(options_.out, is_first_rank());
  read_text();
  const formats::OrderedJson identity = identity_of(options_, data_);
  if (group_ != nullptr) {
    ranks::NamedValues values = training::named_values(identity);
    std::string planned;  // the ranks divide the runs by their order
    for (const RunResults& run : planned_runs()) planned += comparison::RunStore::model_folder(run) + ' ';
    values.emplace_back("list of runs", planned);
    ranks::check_same(*group_, values);
  }
  if (is_first_rank()) {
    store.open(identity, options_.overwrite);
    if (store.keeps() && !options_.settings.empty())
      core::write_file(options_.out / "settings.json", options_.settings);
  }
  all_done(true);  // from here on all ranks use the folder
  const comparison::RunSetting setting{options_, data_, plan_, held_out_.bytes, store};
  const std::vector<RunResults> planned = planned_runs();
  std::vector<RunResults> done;
  if (!tune_methods(setting)) return results_of(done, planned.size());
  const bool all = all_done(do_runs(setting, planned, done));
  if (group_ != nullptr && is_first_rank()) {
    done.clear();
    for (const RunResults& begun : planned) {
      comparison::StoredRun run = store.load(begun);
      if (run.done) done.push_back(std::move(run.results));
    }
  }
  if (!all || !is_first_rank()) return results_of(done, planned.size());
  at_.method.clear();
  at_.task.clear();
  std::vector<RunResults> on_text;
  std::copy_if(done.begin(), done.end(), std::back_inserter(on_text),
               [](const RunResults& run) { return run.task.name.empty(); });
  const auto speed = comparison::measure_speed(
      setting, on_text, [&](const CompareStatus& status, double fraction) { report(status, fraction); });
  CompareResults results = results_of(done, planned.size());
  if (speed) results.speed = *speed;
  write(results);
  return results;
}

}  // namespace

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const comparison::Task& task : comparison::all_tasks()) names.emplace_back(task.name);
  return names;
}

CompareOptions compare_defaults(const std::string& preset_name) {
  CompareOptions options;
  options.preset = preset_name;
  options.train = training_defaults(preset_name);
  return options;
}

CompareResults comparison::compare_over(ranks::Group* group, const CompareOptions& options,
                                        const std::function<void(const CompareStatus&)>& on_status) {
  return Comparison(options, on_status, group).run();
}

CompareResults compare(const CompareOptions& options, const std::function<void(const CompareStatus&)>& on_status) {
  return comparison::compare_over(nullptr, options, on_status);
}

}  // namespace alibi
