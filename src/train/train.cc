#include "alibi/train.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "alibi/evaluate.h"
#include "alibi/runtime.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/files.h"
#include "evaluate/checks.h"
#include "evaluate/evaluate_over.h"
#include "nn/foreach.h"
#include "train/batches.h"
#include "train/checkpoint.h"
#include "train/described.h"
#include "train/identity.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/sharded_gradients.h"
#include "train/train_over.h"

namespace alibi {
namespace {

constexpr const char* kSettingsFile = "train.json";

std::string resumable(int64_t step) {
  return fmt::format(". The checkpoint of update {} is intact and can be resumed", step);
}

class Trainer {
 public:
  /// `group` is null if there are no other ranks.
  Trainer(LanguageModel& model, std::span<const int32_t> tokens, std::span<const uint8_t> scored,
          const TrainOptions& options, const TrainRun& run, ranks::Group* group);

  TrainResult run();

 private:
  bool is_first_rank() const { return group_ == nullptr || group_->rank() == 0; }
  void open_folder();
  void share_start();
  void begin_files();
  void write_again_what_is_gone();
  void check_model() const;
  TrainStatus update();
  void evaluate_held_out(TrainStatus& status);
  bool is_finished() const;
  /// What all ranks do after an update; rank 0 decides.
  struct Decision {
    bool stops, writes;
  };
  Decision decide(const TrainStatus& status);
  bool is_checkpoint_due(const TrainStatus& status) const;
  void write_checkpoint();
  std::string unharmed() const;
  [[noreturn]] void fail_diverged(const std::string& what) const;
  template <class Write>
  void write_or_explain(const Write& write) const;
  TrainResult result(TrainEnd end, int64_t resumed_step) const;
  double seconds() const { return seconds_before_ + core::seconds_since(start_); }

  LanguageModel& model_;
  const TrainOptions& options_;
  const TrainRun& run_;
  ranks::Group* group_;
  std::span<const int32_t> tokens_, valid_;
  std::vector<Segment> scored_;  // parts of valid_; empty: all
  training::BlockOrder order_;
  Schedule schedule_;
  int64_t steps_;
  std::vector<Parameter*> parameters_;
  training::Owners owners_;
  training::ShardedGradients gradients_;
  training::OptimizerState optimizer_;
  training::TrainState state_;
  formats::OrderedJson identity_;
  std::optional<training::Checkpoints> checkpoints_;
  std::optional<training::Metrics> metrics_;  // empty if nothing is written, or not yet
  std::vector<TrainStatus> not_written_;      // to be written when metrics_ is created
  core::Clock::time_point start_ = core::Clock::now(), last_checkpoint_ = start_;
  double seconds_before_ = 0;
  double recent_seconds_ = 0, recent_tokens_ = 0;  // exponentially weighted sums for the current speed
};

Trainer::Trainer(LanguageModel& model, std::span<const int32_t> tokens, std::span<const uint8_t> scored,
                 const TrainOptions& options, const TrainRun& run, ranks::Group* group)
    : model_(model),
      options_(options),
      run_(run),
      group_(group),
      tokens_(tokens),
      valid_(run.valid),
      order_(tokens, options.train_length, model.tokenizer().end_of_text(), options.seed, scored),
      schedule_(options.schedule()),
      steps_(options.steps()),
      parameters_((model.to_float32(), model.parameters())),
      owners_(parameters_, group == nullptr ? 1 : group->size()),
      gradients_(group, owners_, model, options),
      optimizer_(group == nullptr ? training::OptimizerState(options, parameters_)
                                  : training::OptimizerState(options, parameters_, owners_, group->rank())) {
  if (options.eval_tokens > 0) {
    scored_ = evaluation::spread_blocks(std::ssize(valid_), options.eval_tokens, options.train_length);
  }
  model_.set_train_length(options.train_length);
  model_.set_precision(options.precision);
  model_.set_recompute(options.recompute);
  if (!run.folder.empty() || group_ != nullptr) {
    identity_ = training::identity_of(model, tokens, valid_, options);
  }
  if (group_ != nullptr) ranks::check_same(*group_, training::named_values(identity_));
  if (!run.folder.empty() && is_first_rank()) open_folder();
  if (group_ != nullptr) share_start();
}

/// Rank 0 has opened the folder. The other ranks begin or resume as it does.
void Trainer::share_start() {
  std::vector<int64_t> start{state_.step, state_.tokens, state_.finished ? 1 : 0};
  ranks::broadcast(*group_, ranks::Tag::control, ranks::bytes_of(start));
  if (!is_first_rank()) {
    state_.step = start[0];
    state_.tokens = start[1];
    state_.finished = start[2] != 0;
    state_.loss.resize(static_cast<size_t>(state_.step));  // rank 0 has the values
    if (state_.step > 0) training::load_checkpoint(run_.folder, state_.step, model_, optimizer_);
  }
  // Each rank has read the model of --from, or the checkpoint, from its own host.
  ranks::check_same(*group_, {{"the hash of the weights", training::weights_digest(model_)}});
  group_->set_advice(state_.step == 0 ? ". There is no checkpoint yet" : resumable(state_.step));
}

void Trainer::open_folder() {
  core::make_folder(run_.folder);
  checkpoints_.emplace(run_.folder);
  const std::optional<training::Checkpoint> earlier = run_.resume ? training::find_newest(run_.folder) : std::nullopt;
  if (earlier) {
    for (const std::string& damaged : earlier->info.damaged) {
      if (run_.on_warning) {
        run_.on_warning(fmt::format("a damaged checkpoint was skipped, training resumes from update {}: {}",
                                    earlier->info.step, damaged));
      }
    }
    state_ = checkpoints_->resume(*earlier, model_, optimizer_, identity_);
    seconds_before_ = state_.seconds;
    training::write_trained_on(run_.folder, tokens_, run_.valid);
    metrics_.emplace(run_.folder, state_.step);
  } else if (!run_.overwrite) {
    check_folder_is_free(run_.folder);
    begin_files();
  }
  if (run_.resume && run_.on_resume) run_.on_resume(state_.step, state_.finished);
}

/// Takes over the folder for this run. An earlier run in it is replaced only when the first checkpoint is written, so
/// it stays intact if this run fails before.
void Trainer::begin_files() {
  checkpoints_->remove_all();
  if (!run_.settings.empty()) core::write_file(run_.folder / kSettingsFile, run_.settings);
  training::write_trained_on(run_.folder, tokens_, run_.valid);
  metrics_.emplace(run_.folder, 0);
  for (const TrainStatus& status : not_written_) metrics_->add(status);
  not_written_.clear();
}

/// The folder or its files may have been removed or moved.
void Trainer::write_again_what_is_gone() {
  const bool lacks_settings = !run_.settings.empty() && !core::path_exists(run_.folder / kSettingsFile);
  const bool lacks_text = !core::path_exists(run_.folder / training::kTrainedOnFile);
  const bool lacks_metrics = !metrics_->is_in_place(), lacks_checkpoints = !checkpoints_->is_in_place();
  if (!lacks_settings && !lacks_text && !lacks_metrics && !lacks_checkpoints) return;
  core::make_folder(run_.folder);
  if (lacks_checkpoints) checkpoints_.emplace(run_.folder);
  if (lacks_settings) core::write_file(run_.folder / kSettingsFile, run_.settings);
  if (lacks_text) training::write_trained_on(run_.folder, tokens_, run_.valid);
  if (lacks_metrics) metrics_->write_again(state_.step);
  if (!run_.on_warning) return;
  run_.on_warning(
      fmt::format("{} or files in it were removed or moved during the training; they have been written again",
                  run_.folder.string()));
}

TrainStatus Trainer::update() {
  const core::Clock::time_point start = core::Clock::now();
  const auto [sum, norm] = gradients_.compute(order_, state_.step);
  const auto [loss, tokens] = sum;
  // A loss this small without a gradient means that the model gives the same output for every token, because it
  // overflowed.
  constexpr double min_loss = 1e-3;
  if (!std::isfinite(loss) || !std::isfinite(norm) || (norm == 0 && loss > min_loss)) {
    fail_diverged(fmt::format("step {}: the loss is {} and the gradient norm is {}, so no weights were updated",
                              state_.step + 1, loss, norm));
  }
  optimizer_.update(state_.step, training::clip_factor(norm, options_.clip));
  if (group_ != nullptr) training::gather_values(*group_, owners_, parameters_, gradients_.groups());
  model_.weights_changed();

  TrainStatus status;
  status.learning_rate = schedule_.at(state_.step);
  status.step = ++state_.step;
  status.steps = steps_;
  status.tokens = state_.tokens += tokens;
  status.loss = loss;
  state_.loss.push_back(static_cast<float>(loss));
  status.gradient_norm = norm;
  recent_seconds_ = 0.9 * recent_seconds_ + core::seconds_since(start);
  recent_tokens_ = 0.9 * recent_tokens_ + static_cast<double>(tokens);
  status.tokens_per_second = recent_tokens_ / recent_seconds_;
  return status;
}

void Trainer::evaluate_held_out(TrainStatus& status) {
  EvaluateOptions evaluate_options;
  evaluate_options.length = options_.train_length;
  evaluate_options.segments = scored_;
  evaluate_options.mask_rate = options_.mask_rate;
  evaluate_options.batch_tokens = std::max(options_.train_length, options_.micro_batch_tokens);
  double loss = 0;
  try {
    loss = evaluation::evaluate_over(group_, model_, valid_, evaluate_options).nll();
  } catch (const NotFiniteError& error) {
    fail_diverged(
        fmt::format("step {}: the held-out text cannot be scored after this update: {}", state_.step, error.what()));
  }
  state_.evaluations.push_back({state_.step, loss});
  status.valid_loss = loss;
  status.best = state_.best()->step == state_.step;
}

/// Whether all updates are done, or the held-out loss has not fallen for too many evaluations.
bool Trainer::is_finished() const {
  return state_.step >= steps_ || (options_.patience > 0 && state_.evaluations_without_gain() >= options_.patience);
}

bool Trainer::is_checkpoint_due(const TrainStatus& status) const {
  return state_.finished || status.best || (run_.checkpoint_steps > 0 && state_.step % run_.checkpoint_steps == 0) ||
         (run_.checkpoint_minutes > 0 && core::seconds_since(last_checkpoint_) >= 60 * run_.checkpoint_minutes);
}

Trainer::Decision Trainer::decide(const TrainStatus& status) {
  bool asked = run_.should_stop && run_.should_stop();
  if (group_ != nullptr) {
    const std::vector<double> all = ranks::all_gather(*group_, asked ? 1 : 0);
    asked = std::any_of(all.begin(), all.end(), [](double one) { return one != 0; });
  }
  std::vector<char> decided{asked, checkpoints_ && (asked || is_checkpoint_due(status)), state_.finished};
  if (group_ != nullptr) ranks::broadcast(*group_, ranks::Tag::control, ranks::bytes_of(decided));
  state_.finished = decided[2] != 0;
  return {decided[0] != 0, decided[1] != 0};
}

void Trainer::write_checkpoint() {
  if (!is_first_rank()) return optimizer_.send_all(*group_);
  state_.seconds = seconds();
  metrics_ ? write_again_what_is_gone() : begin_files();
  metrics_->sync();
  checkpoints_->write(model_, optimizer_.to_write(group_), state_, identity_);
  core::write_file(run_.folder / "loss.svg",
                   training::loss_figure(state_, training::blocks_per_update(options_) * options_.train_length));
  checkpoints_->prune(run_.keep, state_.best());
  last_checkpoint_ = core::Clock::now();
  if (run_.on_checkpoint) run_.on_checkpoint(state_.step);
}

/// Throws NotFiniteError if the last update broke the model: weights or moments are not finite, or so large that the
/// loss is not finite.
void Trainer::check_model() const {
  const auto check_values = [&](const std::string& name, const Tensor& values) {
    if (std::isfinite(nn::sum_of_squares({values}))) return;
    fail_diverged(fmt::format("step {}: {} is not finite after this update", state_.step, name));
  };
  for (const Parameter* parameter : parameters_) check_values(parameter->name, parameter->value);
  for (const formats::NamedTensor& moment : optimizer_.tensors()) check_values(moment.name, moment.tensor);
  if (!is_first_rank()) return;
  EvaluateOptions evaluate_options;
  evaluate_options.length = options_.train_length;
  evaluate_options.mask_rate = 1;
  const std::span<const int32_t> text = valid_.empty() ? tokens_ : valid_;
  try {
    evaluate(model_, text.first(std::min(text.size(), static_cast<size_t>(options_.train_length))), evaluate_options);
  } catch (const NotFiniteError& error) {
    fail_diverged(fmt::format("step {}: the model overflows after this update: {}", state_.step, error.what()));
  }
}

/// A sentence for error messages that says which checkpoint can be resumed.
std::string Trainer::unharmed() const {
  if (run_.folder.empty() || group_ != nullptr) return "";  // a rank adds Group::advice()
  if (!metrics_) return fmt::format(". The earlier content of {} is unchanged", run_.folder.string());
  try {
    const std::optional<CheckpointInfo> newest = newest_checkpoint(run_.folder);
    if (!newest) return ". There is no checkpoint yet";
    return resumable(newest->step);
  } catch (const Error& other) {
    return fmt::format(". {}", other.what());
  }
}

void Trainer::fail_diverged(const std::string& what) const {
  throw NotFiniteError(fmt::format("[train] {}. Try a lower learning rate than {} or a longer warmup{}", what,
                                   options_.learning_rate, unharmed()));
}

template <class Write>
void Trainer::write_or_explain(const Write& write) const {
  try {
    write();
  } catch (const Error& error) {
    fail("{}{}", error.what(), unharmed());
  }
}

TrainResult Trainer::result(TrainEnd end, int64_t resumed_step) const {
  TrainResult result;
  result.tokens = state_.tokens;
  result.steps = state_.step;
  result.seconds = seconds();
  result.tokens_per_second = static_cast<double>(result.tokens) / result.seconds;
  result.loss = state_.loss;
  result.evaluations = state_.evaluations;
  result.best = state_.best();
  result.weights_step = state_.step;
  result.resumed_step = resumed_step;
  result.end = end;
  return result;
}

TrainResult Trainer::run() {
  const int64_t resumed_step = state_.step;
  bool asked = false;
  while (!(is_first_rank() ? is_finished() : state_.finished) && !asked) {
    TrainStatus status = update();
    const bool evaluates = options_.eval_steps > 0 && (state_.step % options_.eval_steps == 0 || state_.step == steps_);
    if (evaluates) evaluate_held_out(status);
    status.seconds = seconds();
    const auto here = static_cast<double>(state_.step - resumed_step);
    status.seconds_left = static_cast<double>(steps_ - state_.step) * (status.seconds - seconds_before_) / here;
    status.memory_bytes = peak_resident_bytes();
    state_.finished = is_finished();
    const bool is_logged = state_.step % run_.log_steps == 0 || state_.finished || status.valid_loss.has_value();
    if (is_logged && metrics_) write_or_explain([&] { metrics_->add(status); });
    if (is_logged && checkpoints_ && !metrics_) not_written_.push_back(status);
    if (run_.on_step && is_first_rank()) run_.on_step(status);
    const auto [stops, writes] = decide(status);
    asked = stops;
    if (writes || state_.finished) check_model();
    if (writes) write_or_explain([&] { write_checkpoint(); });
    if (writes && group_ != nullptr) group_->set_advice(resumable(state_.step));
  }
  model_.set_precision(Precision::f32);
  if (asked && !state_.finished) return result(TrainEnd::asked, resumed_step);
  TrainResult finished = result(state_.step < steps_ ? TrainEnd::no_gain : TrainEnd::all_tokens, resumed_step);
  if (options_.patience > 0 && is_first_rank() && finished.best->step != state_.step) {
    checkpoints_->load_weights(finished.best->step, model_);
    finished.weights_step = finished.best->step;
  }
  return finished;
}

}  // namespace

TrainResult training::train_over(ranks::Group* group, LanguageModel& model, std::span<const int32_t> tokens,
                                 const TrainOptions& options, const TrainRun& run, std::span<const uint8_t> scored) {
  options.validate();
  if (group != nullptr && group->size() == 1) group = nullptr;
  training::check_ranks(group == nullptr ? 1 : group->size(), options);
  options.check_text(static_cast<int64_t>(tokens.size()));
  check_usage(options.eval_steps == 0 || !run.valid.empty(),
              "[train] eval_steps is {}, but there is no held-out text; give some, or set eval_steps to 0",
              options.eval_steps);
  check_usage(!run.folder.empty() || (!run.resume && options.patience == 0),
              "[train] resuming and keeping the best weights need a folder; give one");
  const Interpolation& interpolation = model.interpolation();
  const int64_t unchanged = interpolation.from > 0 ? interpolation.from : model.config().train_length;
  check_usage(!interpolation.dynamic || options.train_length <= unchanged,
              "[train] the training length is {}, expected at most {}, because the model interpolates the positions "
              "of longer texts, which training does not do",
              options.train_length, unchanged);
  training::check_ranges(run);
  return Trainer(model, tokens, scored, options, run, group).run();
}

TrainResult train(LanguageModel& model, std::span<const int32_t> tokens, const TrainOptions& options,
                  const TrainRun& run) {
  return training::train_over(nullptr, model, tokens, options, run);
}

TrainResult train(LanguageModel& model, std::span<const int32_t> tokens, const TrainOptions& options,
                  const std::function<void(const TrainStatus&)>& on_step) {
  TrainRun run;
  run.on_step = on_step;
  return train(model, tokens, options, run);
}

}  // namespace alibi
