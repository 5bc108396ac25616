#include "alibi/compare.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <optional>

#include "alibi/results.h"
#include "alibi/runtime.h"
#include "alibi/version.h"
#include "compare/defaults.h"
#include "compare/held_out.h"
#include "compare/report_settings.h"
#include "core/check.h"
#include "core/files.h"
#include "model/position.h"
#include "report/html.h"
#include "text/corpus.h"
#include "text/training_data.h"

namespace alibi {
namespace {

std::string ended(const LanguageModel& model, int64_t end) {
  return fmt::format("{} positions end at {}", name_of(model.config().transformer.position), end);
}

using Clock = std::chrono::steady_clock;

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

/// Shares of a method's time, for the estimate of what is left.
constexpr double train_share = 0.7, evaluate_share = 0.26;

class Comparison {
 public:
  Comparison(const CompareOptions& options, const std::function<void(const CompareStatus&)>& on_status)
      : options_(options), on_status_(on_status) {}

  CompareResults run();

 private:
  void check_options();
  void read_text();
  LanguageModelConfig model_config(Position method) const;
  MethodResults run_method(Position method);
  void train_method(LanguageModel& model, MethodResults& results);
  void evaluate_method(const LanguageModel& model, MethodResults& results);
  void sample(const LanguageModel& model, MethodResults& results);
  void describe(CompareResults& results) const;
  void report(CompareStatus status, double method_fraction) const;
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  CompareOptions options_;
  const std::function<void(const CompareStatus&)>& on_status_;
  Clock::time_point start_ = Clock::now();
  TrainingData data_;
  std::string corpus_name_;
  std::span<const int32_t> valid_tokens_;  // those that are scored
  int64_t scored_bytes_ = 0;               // of text that they stand for
  size_t methods_done_ = 0;
  std::string method_;
};

void Comparison::check_options() {
  options_.train.validate();
  check_usage(!options_.methods.empty(), "[compare] there are no methods to compare");
  std::vector<Position> sorted = options_.methods;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  check_usage(twice == sorted.end(), "[compare] the method {} is named twice",
              twice == sorted.end() ? "" : name_of(*twice));
  for (const Position method : options_.methods) model_config(method);  // throws what is wrong with it
  if (options_.lengths.empty()) options_.lengths = lengths_to_measure(options_.train.length);
  std::sort(options_.lengths.begin(), options_.lengths.end());
  options_.lengths.erase(std::unique(options_.lengths.begin(), options_.lengths.end()), options_.lengths.end());
  check_usage(options_.lengths.front() >= 1, "[compare] an evaluation length is {}, expected at least 1",
              options_.lengths.front());
  check_usage(options_.eval_tokens >= 0, "[compare] eval_tokens is {}, expected at least 0", options_.eval_tokens);
  if (options_.eval_tokens == 0) options_.eval_tokens = tokens_to_score(options_.preset, options_.lengths.back());
  if (options_.sample_tokens < 0) options_.sample_tokens = 4 * options_.train.length;
}

void Comparison::read_text() {
  if (options_.texts.empty()) {
    options_.texts = default_corpus();
    corpus_name_ = fmt::format("the C++ headers of this machine ({})", fmt::join(options_.texts, ", "));
  } else {
    corpus_name_ = fmt::format("{}", fmt::join(options_.texts, ", "));
  }
  data_ =
      training_data(options_.texts, options_.valid, options_.tokenizer, [&](std::string_view work, double fraction) {
        CompareStatus status;
        status.phase = work;
        status.fraction = fraction;
        report(status, 0);
      });
  options_.train.check_text(static_cast<int64_t>(data_.train.tokens.size()));
  valid_tokens_ = data_.valid.tokens;
  if (static_cast<int64_t>(valid_tokens_.size()) > options_.eval_tokens) {
    valid_tokens_ = valid_tokens_.first(static_cast<size_t>(options_.eval_tokens));
  }
  check(static_cast<int64_t>(valid_tokens_.size()) >= options_.lengths.back(),
        "[compare] the held-out text has {} tokens, fewer than the longest length, {}; give more text with --valid or "
        "shorter --lengths",
        valid_tokens_.size(), options_.lengths.back());
  scored_bytes_ = bytes_of_prefix(data_, valid_tokens_.size());
}

void Comparison::report(CompareStatus status, double method_fraction) const {
  if (!on_status_) return;
  status.method = method_;
  status.seconds = seconds();
  const double done =
      (static_cast<double>(methods_done_) + method_fraction) / static_cast<double>(options_.methods.size());
  status.seconds_left = done > 0.01 ? status.seconds * (1 - done) / done : 0;
  on_status_(status);
}

void Comparison::train_method(LanguageModel& model, MethodResults& results) {
  reset_peak_resident_bytes();
  // About 200 points make a curve; each is the mean of the updates since the last.
  const int64_t every = std::max<int64_t>(1, options_.train.steps() / 200);
  double sum = 0;
  int64_t updates = 0;
  const TrainResult trained = train(model, data_.train.tokens, options_.train, [&](const TrainStatus& train_status) {
    sum += train_status.loss;
    ++updates;
    if (train_status.step % every == 0 || train_status.step == train_status.steps) {
      results.loss.push_back({train_status.step, train_status.tokens, sum / static_cast<double>(updates)});
      sum = 0;
      updates = 0;
    }
    CompareStatus status;
    status.phase = "train";
    status.train = train_status;
    status.fraction = static_cast<double>(train_status.step) / static_cast<double>(train_status.steps);
    report(status, train_share * status.fraction);
  });
  results.train_tokens = trained.tokens;
  results.train_seconds = trained.seconds;
  results.train_tokens_per_second = trained.tokens_per_second;
  results.train_peak_bytes = peak_resident_bytes();
  model.release_training_memory();
}

void Comparison::evaluate_method(const LanguageModel& model, MethodResults& results) {
  reset_peak_resident_bytes();
  const int64_t count = static_cast<int64_t>(valid_tokens_.size());
  const size_t lengths = options_.lengths.size();
  for (size_t i = 0; i < lengths; ++i) {
    EvaluationPoint point;
    point.length = options_.lengths[i];
    point.stride = point.length;
    const std::optional<int64_t> end = end_of_positions(model.config().transformer);
    if (end && point.length > *end) {
      point.gap = ended(model, *end);
      results.evaluations.push_back(point);
      continue;
    }
    EvaluateOptions evaluate_options;
    evaluate_options.length = point.length;
    evaluate_options.on_progress = [&](int64_t done, int64_t) {
      CompareStatus status;
      status.phase = "evaluate";
      status.length = point.length;
      status.fraction = (static_cast<double>(i) + static_cast<double>(done) / static_cast<double>(count)) /
                        static_cast<double>(lengths);
      report(status, train_share + evaluate_share * status.fraction);
    };
    const Evaluation evaluation = evaluate(model, valid_tokens_, evaluate_options);
    point.tokens = evaluation.tokens;
    point.nll = evaluation.nll();
    point.perplexity = evaluation.perplexity();
    point.bits_per_byte = evaluation.bits_per_byte(scored_bytes_);
    point.tokens_per_second = evaluation.tokens_per_second();
    results.evaluations.push_back(point);
    // Losses by position: at four times the training length both the start and the far end have many windows.
    if (results.per_position_length == 0 || point.length <= 4 * options_.train.length) {
      results.per_position_length = point.length;
      results.per_position_nll.clear();
      for (size_t p = 0; p < evaluation.position_nll.size(); ++p) {
        results.per_position_nll.push_back(evaluation.position_nll[p] /
                                           static_cast<double>(evaluation.position_tokens[p]));
      }
    }
  }
  results.eval_peak_bytes = peak_resident_bytes();
}

void Comparison::sample(const LanguageModel& model, MethodResults& results) {
  const Tokenizer& tokenizer = *data_.tokenizer;
  results.sample_prompt = beginning_of(tokenizer, valid_tokens_, std::max<int64_t>(1, options_.train.length / 2));
  const auto prompt_tokens = static_cast<int64_t>(tokenizer.encode(results.sample_prompt).size());
  GenerateOptions generate_options;
  generate_options.max_tokens = options_.sample_tokens;
  generate_options.temperature = 0.8;
  generate_options.seed = options_.train.seed;
  const std::optional<int64_t> end = end_of_positions(model.config().transformer);
  if (end && *end - prompt_tokens < generate_options.max_tokens) {
    generate_options.max_tokens = std::max<int64_t>(0, *end - prompt_tokens);
    results.sample_note = ended(model, *end);
  }
  if (tokenizer.kind() != "byte") {
    // The same draws, up to the training length.
    GenerateOptions until_there = generate_options;
    until_there.max_tokens = std::clamp<int64_t>(options_.train.length - prompt_tokens, 0, generate_options.max_tokens);
    const std::string within = model.generate(results.sample_prompt, until_there);
    results.sample_bytes_at_train_length = static_cast<int64_t>(results.sample_prompt.size() + within.size());
  }
  int64_t written = 0;  // a token gives one piece at most
  generate_options.on_text = [&](std::string_view) {
    ++written;
    CompareStatus status;
    status.phase = "generate";
    status.fraction = std::min(1.0, static_cast<double>(written) / static_cast<double>(generate_options.max_tokens));
    report(status, train_share + evaluate_share + (1 - train_share - evaluate_share) * status.fraction);
    return true;
  };
  results.sample = model.generate(results.sample_prompt, generate_options);
}

LanguageModelConfig Comparison::model_config(Position method) const {
  LanguageModelConfig config = with_position(preset(options_.preset), method, options_.train.length);
  if (options_.dropout) config = with_dropout(config, *options_.dropout);
  if (data_.tokenizer) config = with_vocab_size(config, data_.tokenizer->vocab_size());
  config.validate();
  return config;
}

MethodResults Comparison::run_method(Position method) {
  method_ = name_of(method);
  MethodResults results;
  results.name = method_;
  LanguageModel model(model_config(method), options_.train.seed, data_.tokenizer);
  results.parameters = model.parameter_count();
  train_method(model, results);
  if (!options_.out.empty()) {
    results.model_folder = (std::filesystem::path("models") / method_).string();
    model.save(options_.out / results.model_folder);
  }
  evaluate_method(model, results);
  if (options_.sample_tokens > 0) sample(model, results);
  return results;
}

void Comparison::describe(CompareResults& results) const {
  const TrainOptions& t = options_.train;
  results.train_length = t.length;
  results.seed = t.seed;
  results.threads = threads();
  results.preset = options_.preset;
  results.parameters = results.methods.front().parameters;
  results.tokenizer = data_.tokenizer->kind();
  results.vocab_size = data_.tokenizer->vocab_size();
  results.train_bytes = data_.train_bytes;
  results.valid_bytes = data_.valid_bytes;
  results.train_files = data_.train_files;
  results.valid_files = data_.valid_files;
  results.corpus_name = corpus_name_;
  results.command = options_.command;
  results.machine = fmt::format("{}, {} threads, {}", cpu_name(), threads(), name_of(isa()));
  results.version = version;
  results.seconds = seconds();
  results.settings = report_settings(options_, model_config(options_.methods.front()), data_, corpus_name_,
                                     static_cast<int64_t>(valid_tokens_.size()));
}

CompareResults Comparison::run() {
  CompareResults results;
  results.started = utc_now();
  check_options();
  std::optional<FolderLock> lock;
  if (!options_.out.empty()) {
    make_folder(options_.out);
    lock.emplace(options_.out);
  }
  read_text();
  for (const Position method : options_.methods) {
    results.methods.push_back(run_method(method));
    ++methods_done_;
  }
  describe(results);
  if (!options_.out.empty()) write_report(results, options_.out);
  return results;
}

}  // namespace

CompareOptions compare_defaults(const std::string& preset_name) {
  CompareOptions options;
  options.preset = preset_name;
  options.train = training_defaults(preset_name);
  return options;
}

CompareResults compare(const CompareOptions& options, const std::function<void(const CompareStatus&)>& on_status) {
  return Comparison(options, on_status).run();
}

}  // namespace alibi
