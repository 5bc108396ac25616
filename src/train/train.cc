#include "alibi/train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "alibi/evaluate.h"
#include "alibi/runtime.h"
#include "core/check.h"
#include "core/files.h"
#include "train/batches.h"
#include "train/checkpoint.h"
#include "train/described.h"
#include "train/identity.h"
#include "train/loss_figure.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/trained_on.h"
#include "train/update.h"

namespace alibi {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Trainer {
 public:
  Trainer(LanguageModel& model, std::span<const int32_t> tokens, const TrainOptions& options, const TrainRun& run);

  TrainResult run();

 private:
  void open_folder();
  TrainStatus update();
  void evaluate_held_out(TrainStatus& status);
  bool is_finished() const;
  bool is_checkpoint_due(const TrainStatus& status) const;
  void write_checkpoint();
  template <class Write>
  void write_or_explain(const Write& write) const;
  TrainResult result(TrainEnd end, int64_t resumed_step) const;
  double seconds() const { return seconds_before_ + seconds_since(start_); }

  LanguageModel& model_;
  const TrainOptions& options_;
  const TrainRun& run_;
  std::span<const int32_t> tokens_, valid_;
  BlockOrder order_;
  Schedule schedule_;
  int64_t steps_;
  std::vector<Parameter*> parameters_;
  OptimizerState optimizer_;
  TrainState state_;
  OrderedJson identity_;
  std::optional<Checkpoints> checkpoints_;
  std::optional<Metrics> metrics_;
  Clock::time_point start_ = Clock::now(), last_checkpoint_ = start_;
  double seconds_before_ = 0;
  double recent_seconds_ = 0, recent_tokens_ = 0;  // fading sums, for a speed that follows the machine
};

Trainer::Trainer(LanguageModel& model, std::span<const int32_t> tokens, const TrainOptions& options,
                 const TrainRun& run)
    : model_(model),
      options_(options),
      run_(run),
      tokens_(tokens),
      valid_(run.valid),
      order_(tokens, options.length, model.tokenizer().end_of_text(), options.seed),
      schedule_(options.schedule()),
      steps_(options.steps()),
      parameters_(model.parameters()),
      optimizer_(options, parameters_) {
  if (options.eval_tokens > 0) valid_ = valid_.first(std::min(valid_.size(), static_cast<size_t>(options.eval_tokens)));
  model_.set_train_length(options.length);
  model_.set_precision(options.precision);
  model_.set_recompute(options.recompute);
  if (run.folder.empty()) return;
  identity_ = identity_of(model, tokens, valid_, options);
  check_mapped(tokens.data());
  check_mapped(valid_.data());
  open_folder();
}

void Trainer::open_folder() {
  make_folder(run_.folder);
  checkpoints_.emplace(run_.folder);
  const std::optional<Checkpoint> earlier = find_newest(run_.folder);
  if (run_.resume && earlier) {
    for (const std::string& damaged : earlier->info.damaged) {
      if (run_.on_warning) {
        run_.on_warning(fmt::format("a damaged checkpoint is left out, the one of update {} is taken: {}",
                                    earlier->info.step, damaged));
      }
    }
    state_ = checkpoints_->resume(*earlier, model_, optimizer_, identity_);
    seconds_before_ = state_.seconds;
  } else {
    check(!earlier || earlier->info.finished,
          "[train] {} holds a run that was stopped after {} updates; resume it, or train into another folder",
          run_.folder.string(), earlier ? earlier->info.step : 0);
    checkpoints_->remove_all();
    if (!run_.settings.empty()) write_file(run_.folder / "train.json", run_.settings);
  }
  write_trained_on(run_.folder, tokens_, run_.valid);
  metrics_.emplace(run_.folder, state_.step);
}

TrainStatus Trainer::update() {
  const Clock::time_point start = Clock::now();
  const auto [loss, tokens] = compute_gradients(model_, order_, state_.step, options_);
  check_mapped(tokens_.data());
  const double norm = gradient_norm(parameters_);
  check(std::isfinite(loss) && std::isfinite(norm),
        "[train] step {}: the loss is {} and the gradient norm {}; nothing was updated. Try a lower learning rate "
        "than {} or a longer warmup",
        state_.step + 1, loss, norm, options_.learning_rate);
  optimizer_.update(state_.step, clip_factor(norm, options_.clip));
  model_.weights_changed();

  TrainStatus status;
  status.learning_rate = schedule_.at(state_.step);
  status.step = ++state_.step;
  status.steps = steps_;
  status.tokens = state_.tokens += tokens;
  status.loss = loss;
  state_.loss.push_back(static_cast<float>(loss));
  status.gradient_norm = norm;
  recent_seconds_ = 0.9 * recent_seconds_ + seconds_since(start);
  recent_tokens_ = 0.9 * recent_tokens_ + static_cast<double>(tokens);
  status.tokens_per_second = recent_tokens_ / recent_seconds_;
  return status;
}

void Trainer::evaluate_held_out(TrainStatus& status) {
  EvaluateOptions evaluate_options;
  evaluate_options.length = options_.length;
  evaluate_options.mask_rate = options_.mask_rate;
  evaluate_options.batch_tokens = std::max(options_.length, options_.micro_batch_tokens);
  const double loss = evaluate(model_, valid_, evaluate_options).nll();
  check(std::isfinite(loss), "[train] step {}: the held-out loss is {}", state_.step, loss);
  state_.evaluations.push_back({state_.step, loss});
  status.valid_loss = loss;
  status.best = state_.best()->step == state_.step;
}

/// The updates are done, or the held-out loss has not fallen for too long.
bool Trainer::is_finished() const {
  return state_.step >= steps_ || (options_.patience > 0 && state_.evaluations_without_gain() >= options_.patience);
}

bool Trainer::is_checkpoint_due(const TrainStatus& status) const {
  return state_.finished || status.best || (run_.checkpoint_steps > 0 && state_.step % run_.checkpoint_steps == 0) ||
         (run_.checkpoint_minutes > 0 && seconds_since(last_checkpoint_) >= 60 * run_.checkpoint_minutes);
}

void Trainer::write_checkpoint() {
  state_.seconds = seconds();
  metrics_->sync();
  checkpoints_->write(model_, optimizer_, state_, identity_);
  write_file(run_.folder / "loss.svg", loss_figure(state_, blocks_per_update(options_) * options_.length));
  checkpoints_->prune(run_.keep, state_.best());
  last_checkpoint_ = Clock::now();
}

/// An error says what it did not harm.
template <class Write>
void Trainer::write_or_explain(const Write& write) const {
  try {
    write();
  } catch (const Error& error) {
    std::optional<CheckpointInfo> newest;
    try {
      newest = newest_checkpoint(run_.folder);
    } catch (const Error& other) {
      fail("{}. {}", error.what(), other.what());
    }
    if (!newest) fail("{}. There is no checkpoint yet", error.what());
    fail("{}. The checkpoint of update {} is whole and can be resumed", error.what(), newest->step);
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
  while (!is_finished() && !asked) {
    TrainStatus status = update();
    if (options_.eval_steps > 0 && (state_.step % options_.eval_steps == 0 || state_.step == steps_)) {
      evaluate_held_out(status);
    }
    status.seconds = seconds();
    const auto here = static_cast<double>(state_.step - resumed_step);
    status.seconds_left = static_cast<double>(steps_ - state_.step) * (status.seconds - seconds_before_) / here;
    status.memory_bytes = peak_resident_bytes();
    state_.finished = is_finished();
    const bool is_logged = state_.step % run_.log_steps == 0 || state_.finished || status.valid_loss.has_value();
    if (metrics_ && is_logged) write_or_explain([&] { metrics_->add(status); });
    if (run_.on_step) run_.on_step(status);
    asked = run_.should_stop && run_.should_stop();
    if (checkpoints_ && (asked || is_checkpoint_due(status))) write_or_explain([&] { write_checkpoint(); });
  }
  model_.set_precision(Precision::f32);
  if (asked && !state_.finished) return result(TrainEnd::asked, resumed_step);
  TrainResult finished = result(state_.step < steps_ ? TrainEnd::no_gain : TrainEnd::all_tokens, resumed_step);
  if (options_.patience > 0 && finished.best->step != state_.step) {
    checkpoints_->load_weights(finished.best->step, model_);
    finished.weights_step = finished.best->step;
  }
  return finished;
}

}  // namespace

TrainResult train(LanguageModel& model, std::span<const int32_t> tokens, const TrainOptions& options,
                  const TrainRun& run) {
  options.validate();
  options.check_text(static_cast<int64_t>(tokens.size()));
  check_usage(options.eval_steps == 0 || !run.valid.empty(), "[train] eval_steps is {}, but there is no held-out text",
              options.eval_steps);
  check_usage(!run.folder.empty() || (!run.resume && options.patience == 0),
              "[train] to resume, or to keep the best weights, a folder is needed");
  check_ranges(run);
  return Trainer(model, tokens, options, run).run();
}

TrainResult train(LanguageModel& model, std::span<const int32_t> tokens, const TrainOptions& options,
                  const std::function<void(const TrainStatus&)>& on_step) {
  TrainRun run;
  run.on_step = on_step;
  return train(model, tokens, options, run);
}

}  // namespace alibi
