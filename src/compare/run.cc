#include "compare/run.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>

#include "alibi/attention_map.h"
#include "alibi/evaluate_stream.h"
#include "alibi/loglikelihood.h"
#include "alibi/runtime.h"
#include "compare/task_run.h"
#include "core/check.h"
#include "model/position.h"
#include "train/checkpoint.h"
#include "train/train_over.h"

namespace alibi::comparison {
namespace {

/// Shares of the run's time, for the estimate of the remaining time.
constexpr double kTrainShare = 0.65, kEvaluateShare = 0.31;

class Run {
 public:
  Run(const RunSetting& setting, const TrainOptions& train, StoredRun run, const RunProgress& progress)
      : setting_(setting),
        options_(setting.options),
        train_(train),
        run_(std::move(run)),
        results_(run_.results),
        progress_(progress),
        model_(make_model()) {}

  StoredRun to_end() {
    if (!run_.trained && !train_model()) return run_;
    if (!results_.diverged.empty()) {
      leave_gaps();
      run_.done = true;
      setting_.store.save(run_);
      return run_;
    }
    if (is_on_text() && !evaluate_all()) return run_;
    if (!ask_questions()) return run_;
    if (is_on_text() && options_.sample_tokens != 0 && results_.sample.empty()) sample();
    run_.done = true;
    setting_.store.save(run_);
    return run_;
  }

 private:
  LanguageModel make_model() const {
    if (run_.trained) return LanguageModel::load(setting_.store.path_of(results_));
    return recipe_of(options_, position_from(results_.method))
        .model(train_.train_length, setting_.data.tokenizer, train_.seed);
  }
  bool is_on_text() const { return results_.task.name.empty(); }
  bool is_stopped() const { return options_.should_stop && options_.should_stop(); }
  bool train_model();
  void leave_gaps();
  bool evaluate_all();
  bool ask_questions();
  bool ask_questions_of(TaskAnswers& answers);
  struct Work {
    std::vector<EvaluationPoint> RunResults::*points;
    int64_t length, stride;
  };
  std::vector<Work> works() const;
  EvaluationPoint evaluate_at(const LanguageModel& model, const Work& work, double begun, double share);
  EvaluationPoint evaluate_in_one_pass(double begun, double share);
  void evaluate_context(double begun, double share);
  void map_attention();
  std::function<void(int64_t done, int64_t all)> telling(int64_t length, double begun, double share) const;
  void keep_positions(const Evaluation& evaluation);
  void sample();
  /// The method's last position, if positions are limited.
  std::optional<int64_t> end() const { return model::end_of_positions(model_.config().transformer); }
  bool can_run_at(int64_t length) const { return !end() || length <= *end(); }
  std::string why_not() const { return fmt::format("{} positions end at {}", results_.method, *end()); }

  const RunSetting& setting_;
  const CompareOptions& options_;
  const TrainOptions& train_;
  StoredRun run_;
  RunResults& results_;
  const RunProgress& progress_;
  LanguageModel model_;
};

/// A curve of about 200 points. Each is the mean of the updates since the previous point.
std::vector<LossPoint> loss_curve(const TrainResult& trained) {
  const auto steps = static_cast<int64_t>(trained.loss.size()), every = std::max<int64_t>(1, steps / 200);
  std::vector<LossPoint> curve;
  double sum = 0;
  int64_t updates = 0;
  for (int64_t step = 1; step <= steps; ++step) {
    sum += static_cast<double>(trained.loss[static_cast<size_t>(step - 1)]);
    ++updates;
    if (step % every != 0 && step != steps) continue;
    const double tokens = static_cast<double>(trained.tokens) * static_cast<double>(step) / static_cast<double>(steps);
    curve.push_back({step, std::llround(tokens), sum / static_cast<double>(updates)});
    sum = 0;
    updates = 0;
  }
  return curve;
}

/// Copies the numbers of an evaluation in windows or in one pass.
template <class Evaluated>
void take(const Evaluated& evaluated, int64_t bytes, EvaluationPoint& point) {
  point.tokens = evaluated.tokens;
  point.nll = evaluated.nll();
  point.perplexity = evaluated.perplexity();
  point.bits_per_byte = evaluated.bits_per_byte(bytes);
  point.tokens_per_second = evaluated.tokens_per_second();
  point.block_nll = evaluated.segment_nll;
}

bool Run::train_model() {
  reset_peak_resident_bytes();
  TrainRun run;
  if (setting_.store.keeps()) {
    run.folder = setting_.store.path_of(results_);
    run.resume = true;
    run.keep = 1;
    run.checkpoint_minutes = 1;
    run.valid = setting_.data.valid.tokens;
  }
  run.should_stop = options_.should_stop;
  run.on_step = [&](const TrainStatus& train_status) {
    CompareStatus status;
    status.phase = "train";
    status.train = train_status;
    status.fraction = static_cast<double>(train_status.step) / static_cast<double>(train_status.steps);
    progress_(status, kTrainShare * status.fraction);
    results_.train_tokens = train_status.tokens;  // recorded now because the training may diverge
    results_.train_seconds = train_status.seconds;
    results_.train_tokens_per_second = static_cast<double>(train_status.tokens) / train_status.seconds;
  };
  results_.parameters = model_.parameter_count();
  results_.learning_rate = train_.learning_rate;
  results_.train_flops_per_token = training_flops_per_token(model_.config(), train_.train_length);
  TrainResult trained;
  try {
    trained = training::train_over(nullptr, model_, setting_.data.train.tokens, train_, run, setting_.scored);
  } catch (const NotFiniteError& error) {  // the other methods can still be compared
    results_.diverged = error.what();
    results_.train_peak_bytes = peak_resident_bytes();
    return true;
  }
  if (trained.end == TrainEnd::asked) return false;
  results_.train_tokens = trained.tokens;
  results_.train_seconds = trained.seconds;
  results_.train_tokens_per_second = trained.tokens_per_second;
  results_.train_peak_bytes = peak_resident_bytes();
  results_.loss = loss_curve(trained);
  model_.release_training_memory();
  if (!setting_.store.keeps()) return true;
  model_.save(run.folder);
  run_.trained = true;
  setting_.store.save(run_);
  training::Checkpoints(run.folder).remove_all();  // the checkpoints are not needed any more
  return true;
}

void Run::leave_gaps() {
  if (!is_on_text()) return;
  for (const Work& work : works()) {
    EvaluationPoint point;
    point.length = work.points == &RunResults::streaming ? setting_.held_out.blocks.back().end : work.length;
    point.stride = work.stride;
    point.gap = "the training diverged";
    (results_.*work.points).push_back(point);
  }
}

/// Sets the numbers of an evaluation that overflowed to NaN.
void take_nothing(EvaluationPoint& point) {
  point.nll = point.perplexity = point.bits_per_byte = point.tokens_per_second =
      std::numeric_limits<double>::quiet_NaN();
}

/// Keeps the losses by position of the longest evaluation that is at most four times the training length, because
/// longer ones have few windows.
void Run::keep_positions(const Evaluation& evaluation) {
  if (results_.per_position_length != 0 && evaluation.length > 4 * train_.train_length) return;
  results_.per_position_length = evaluation.length;
  results_.per_position_nll.clear();
  for (size_t p = 0; p < evaluation.position_nll.size(); ++p) {
    results_.per_position_nll.push_back(evaluation.position_nll[p] /
                                        static_cast<double>(evaluation.position_tokens[p]));
  }
}

/// Returns a callback that reports the progress of an evaluation that is `share` of all work and starts when `begun` of
/// it is done.
std::function<void(int64_t, int64_t)> Run::telling(int64_t length, double begun, double share) const {
  return [=, this](int64_t done, int64_t all) {
    CompareStatus status;
    status.phase = "evaluate";
    status.length = length;
    status.fraction = std::min(1.0, begun + share * static_cast<double>(done) / static_cast<double>(all));
    progress_(status, kTrainShare + kEvaluateShare * status.fraction);
  };
}

EvaluationPoint Run::evaluate_in_one_pass(double begun, double share) {
  EvaluationPoint point;
  point.length = setting_.held_out.blocks.back().end;
  point.stride = 1;
  if (!can_run_at(point.length)) {
    point.gap = fmt::format("{}, and one pass over the text needs {} positions", why_not(), point.length);
    return point;
  }
  EvaluateStreamOptions stream_options;
  stream_options.segments = setting_.held_out.blocks;
  stream_options.on_progress = telling(point.length, begun, share);
  try {
    take(evaluate_stream(model_, setting_.data.valid.tokens, stream_options), setting_.held_out_bytes, point);
  } catch (const NotFiniteError&) {
    take_nothing(point);
  }
  return point;
}

EvaluationPoint Run::evaluate_at(const LanguageModel& model, const Work& work, double begun, double share) {
  const int64_t length = work.length, stride = work.stride;
  EvaluationPoint point;
  point.length = length;
  point.stride = stride;
  if (!can_run_at(length)) {
    point.gap = why_not();
    return point;
  }
  EvaluateOptions evaluate_options;
  evaluate_options.length = length;
  evaluate_options.stride = stride;
  evaluate_options.segments = setting_.held_out.blocks;
  evaluate_options.on_progress = telling(length, begun, share);
  try {
    const Evaluation evaluation = evaluate(model, setting_.data.valid.tokens, evaluate_options);
    take(evaluation, setting_.held_out_bytes, point);
    if (work.points == &RunResults::evaluations) keep_positions(evaluation);
  } catch (const NotFiniteError&) {
    take_nothing(point);
  }
  return point;
}

/// Evaluates the same targets with more and more context, until the model overflows.
void Run::evaluate_context(double begun, double share) try {
  const HeldOutPlan& plan = setting_.held_out;
  for (size_t i = 0; i < plan.contexts.size(); ++i) {
    const int64_t context = plan.contexts[i];
    if (!can_run_at(context)) break;
    telling(context, begun, share)(static_cast<int64_t>(i), std::ssize(plan.contexts));
    const int64_t stride = plan.groups.front().size();
    const Evaluation evaluation =
        evaluate(model_, setting_.data.valid.tokens, {.length = context, .stride = stride, .segments = plan.groups});
    results_.context.push_back({context, evaluation.nll(), evaluation.segment_nll, {}});
  }
} catch (const NotFiniteError&) {
}

/// Maps the attention of the first model whose bias bounds far keys at up to four times its training length.
void Run::map_attention() {
  if (!model::Positions(model_.config().transformer).bias->bounds_far_keys() || train_.seed != options_.train.seed)
    return;
  const auto all = static_cast<int64_t>(setting_.data.valid.tokens.size());
  const int64_t length = std::min(all, std::max<int64_t>(64, 4 * train_.train_length));
  if (length >= 64) results_.attention = attention_map(model_, setting_.data.valid.tokens, length);
}

std::vector<Run::Work> Run::works() const {
  std::vector<Work> works;
  for (const int64_t length : options_.lengths) works.push_back({&RunResults::evaluations, length, length});
  for (const int64_t length : options_.lengths) {
    if (options_.stride > 0 && options_.stride < length) {
      works.push_back({&RunResults::sliding, length, options_.stride});
    }
  }
  const bool scales =
      options_.interpolation && model::can_interpolate(model_.config().transformer, options_.interpolation->rotary);
  for (const int64_t length : options_.lengths) {
    if (scales && length > train_.train_length) works.push_back({&RunResults::interpolated, length, length});
  }
  const bool is_windowed =
      std::ranges::find(options_.windowed, position_from(results_.method)) != options_.windowed.end();
  for (const int64_t length : options_.lengths) {
    if (is_windowed && length > train_.train_length) works.push_back({&RunResults::windowed, length, length});
  }
  if (options_.one_pass) works.push_back({&RunResults::streaming, 0, 1});
  return works;
}

/// Saves each evaluation as soon as it is done, and skips those already saved.
bool Run::evaluate_all() {
  reset_peak_resident_bytes();
  const std::vector<Work> all = works();
  const double share = 1 / static_cast<double>(all.size() + 1);
  size_t done = results_.evaluations.size() + results_.sliding.size() + results_.interpolated.size() +
                results_.windowed.size() + results_.streaming.size();
  const LanguageModel windowed = model_.sharing_weights(
      [&](LanguageModelConfig& config) { config.transformer.attention.sliding_window = train_.train_length; });
  for (; done < all.size(); ++done) {
    if (is_stopped()) return false;
    const Work& work = all[done];
    const double begun = static_cast<double>(done) * share;
    if (work.points == &RunResults::interpolated) model_.set_interpolation(*options_.interpolation);
    const LanguageModel& model = work.points == &RunResults::windowed ? windowed : model_;
    (results_.*work.points)
        .push_back(work.points == &RunResults::streaming ? evaluate_in_one_pass(begun, share)
                                                         : evaluate_at(model, work, begun, share));
    model_.set_interpolation({});
    results_.eval_peak_bytes = std::max(results_.eval_peak_bytes, peak_resident_bytes());
    setting_.store.save(run_);
  }
  if (is_stopped()) return false;
  if (results_.context.empty() && !setting_.held_out.groups.empty()) evaluate_context(1 - share, share);
  if (results_.attention.heads.empty()) map_attention();
  setting_.store.save(run_);
  return true;
}

bool Run::ask_questions() {
  if (!is_on_text()) return ask_questions_of(results_.task);
  return std::ranges::all_of(results_.answers, [&](TaskAnswers& answers) { return ask_questions_of(answers); });
}

/// Asks the questions of a task, saves each range as soon as it is done, and skips those already saved. Lengths at
/// which the model cannot run are left out.
bool Run::ask_questions_of(TaskAnswers& answers) {
  const Task& task = task_from(answers.name);
  std::vector<TaskQuestions> plan = planned_questions(task, train_.train_length);
  double all = 0, done = 0;
  for (const TaskQuestions& questions : plan) all += static_cast<double>(questions.length);
  for (size_t i = 0; i < plan.size() && can_run_at(plan[i].length); ++i) {
    TaskQuestions& questions = plan[i];
    const double begun = done / all, share = static_cast<double>(questions.length) / all;
    done += static_cast<double>(questions.length);
    if (i < answers.points.size()) continue;
    if (is_stopped()) return false;
    draw_questions(task, setting_.questions, options_.task_questions, train_.seed, questions);
    AnswerPoint point{.length = questions.length,
                      .distance = questions.distance,
                      .questions = std::ssize(questions.texts),
                      .right = 0,
                      .interval = {}};
    LoglikelihoodOptions computation;
    computation.on_progress = telling(questions.length, begun, share);
    try {
      const std::vector<Loglikelihood> found = loglikelihoods(model_, questions.texts, computation);
      point.right = std::ranges::count_if(found, [](const Loglikelihood& answer) { return answer.greedy; });
    } catch (const NotFiniteError&) {  // no answer is right
    }
    answers.points.push_back(point);
    setting_.store.save(run_);
  }
  return true;
}

void Run::sample() try {
  const Tokenizer& tokenizer = *setting_.data.tokenizer;
  results_.sample_prompt =
      beginning_of(tokenizer, setting_.data.valid.tokens, std::max<int64_t>(1, train_.train_length / 2));
  const auto prompt_tokens = static_cast<int64_t>(tokenizer.encode(results_.sample_prompt).size());
  GenerateOptions generate_options;
  generate_options.max_tokens = options_.sample_tokens < 0 ? 4 * train_.train_length : options_.sample_tokens;
  generate_options.temperature = 0.8;
  generate_options.seed = train_.seed;
  if (!can_run_at(prompt_tokens + generate_options.max_tokens)) {
    generate_options.max_tokens = std::max<int64_t>(0, *end() - prompt_tokens);
    results_.sample_note = why_not();
  }
  if (tokenizer.kind() != "byte") {
    // Uses the same random draws and stops at the training length.
    GenerateOptions until_there = generate_options;
    until_there.max_tokens = std::clamp<int64_t>(train_.train_length - prompt_tokens, 0, generate_options.max_tokens);
    const std::string within = model_.generate(results_.sample_prompt, until_there);
    results_.sample_bytes_at_train_length = static_cast<int64_t>(results_.sample_prompt.size() + within.size());
  }
  int64_t written = 0;  // a token completes at most one piece of text
  generate_options.on_text = [&](std::string_view) {
    ++written;
    CompareStatus status;
    status.phase = "generate";
    status.fraction = std::min(1.0, static_cast<double>(written) / static_cast<double>(generate_options.max_tokens));
    progress_(status, kTrainShare + kEvaluateShare + (1 - kTrainShare - kEvaluateShare) * status.fraction);
    return true;
  };
  results_.sample = model_.generate(results_.sample_prompt, generate_options);
} catch (const NotFiniteError& error) {
  results_.sample_note = error.what();
}

}  // namespace

ModelRecipe recipe_of(const CompareOptions& options, Position method) {
  return {.preset = options.preset,
          .position = method,
          .options = options.model,
          .dropout = options.dropout,
          .keep_embedding_scale = true,  // the methods must differ only in their positions
          .tokenizer = options.tokenizer};
}

LanguageModelConfig model_config(const CompareOptions& options, Position method, int64_t train_length,
                                 const Tokenizer* tokenizer) {
  return recipe_of(options, method)
      .config(train_length, tokenizer ? std::optional(tokenizer->vocab_size()) : std::nullopt);
}

StoredRun run_to_end(const RunSetting& setting, const TrainOptions& train, StoredRun run, const RunProgress& progress) {
  return Run(setting, train, std::move(run), progress).to_end();
}

}  // namespace alibi::comparison
