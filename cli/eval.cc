// alibi eval: measures how well a model predicts a text at any length.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "alibi/evaluate.h"
#include "alibi/loglikelihood.h"
#include "alibi/runtime.h"
#include "alibi/training_data.h"
#include "commands.h"
#include "common.h"
#include "compare/held_out.h"
#include "context_limits.h"
#include "core/check.h"
#include "core/format.h"
#include "eval_text.h"
#include "evaluate/checks.h"
#include "evaluation_output.h"
#include "model/position.h"
#include "ranks.h"
#include "report/progress.h"
#include "train/identity.h"

namespace alibi::cli {
namespace {

constexpr const char* kScorings[] = {"windows", "harness", "llama"};

struct EvalCommand : CommonOptions {
  EvalText text;
  std::vector<int64_t> lengths;        ///< if empty, default_lengths are used
  std::optional<int64_t> stride;       ///< if absent, windows do not overlap
  std::optional<int64_t> eval_tokens;  ///< if absent, all tokens are scored
  bool one_pass = false;               ///< evaluate in one pass, in addition to the requested lengths
  ModelUse use;
  bool per_position = false;
  std::string scoring = kScorings[0];
  bool check_float32 = false;
  ContextOptions context;
};

template <class Evaluate>
auto with_line(int64_t length, const Evaluate& evaluate) {
  report::Progress progress(stderr, lines_without_terminal());
  progress.begin(fmt::format("evaluate at {}", length));
  LoglikelihoodOptions options;
  options.on_progress = [&](int64_t done, int64_t all) {
    progress.update(static_cast<double>(done) / static_cast<double>(all));
  };
  return evaluate(options);
}

nlohmann::ordered_json evaluate_as_harness(const LanguageModel& model, const std::vector<text::Document>& documents,
                                           const std::vector<int64_t>& lengths) {
  std::vector<std::string> texts;
  for (const text::Document& document : documents) texts.push_back(document.text());
  auto evals = nlohmann::ordered_json::array();
  say("{:>8}  {:>10}  {:>10}  {:>10}  {:>9}  {:>8}\n", "length", "per word", "per byte", "bits/byte", "tokens",
      "tokens/s");
  for (const int64_t length : lengths) {
    const RollingEvaluation found = with_line(length, [&](const LoglikelihoodOptions& computation) {
      return evaluate_rolling(model, texts, {.length = length, .computation = computation});
    });
    say("{:>8}  {:>10}  {:>10.6f}  {:>10.4f}  {:>9}  {:>8}\n", length, core::format_perplexity(found.word_perplexity()),
        found.byte_perplexity(), found.bits_per_byte(), found.tokens, core::format_count(found.tokens_per_second()));
    evals.push_back({{"length", length},
                     {"documents", found.documents},
                     {"tokens", found.tokens},
                     {"words", found.words},
                     {"bytes", found.bytes},
                     {"loglikelihood", -found.nll_sum},
                     {"nll", found.nll()},
                     {"perplexity", found.perplexity()},
                     {"word_perplexity", found.word_perplexity()},
                     {"byte_perplexity", found.byte_perplexity()},
                     {"bits_per_byte", found.bits_per_byte()},
                     {"tokens_per_second", found.tokens_per_second()}});
  }
  return evals;
}

nlohmann::ordered_json evaluate_as_llama(const LanguageModel& model, const std::vector<text::Document>& documents,
                                         const std::vector<int64_t>& lengths) {
  std::string text;
  for (const text::Document& document : documents) text += document.text();
  auto evals = nlohmann::ordered_json::array();
  say("{:>8}  {:>10}  {:>10}  {:>8}  {:>9}  {:>8}\n", "length", "perplexity", "+/-", "chunks", "tokens", "tokens/s");
  for (const int64_t length : lengths) {
    const ChunkEvaluation found = with_line(length, [&](const LoglikelihoodOptions& computation) {
      return evaluate_chunks(model, text, {.length = length, .computation = computation});
    });
    say("{:>8}  {:>10}  {:>10.5f}  {:>8}  {:>9}  {:>8}\n", length, core::format_perplexity(found.perplexity()),
        found.perplexity_error(), found.chunks, found.tokens, core::format_count(found.tokens_per_second()));
    evals.push_back({{"length", length},
                     {"chunks", found.chunks},
                     {"tokens", found.tokens},
                     {"nll", found.nll()},
                     {"perplexity", found.perplexity()},
                     {"perplexity_error", found.perplexity_error()},
                     {"tokens_per_second", found.tokens_per_second()}});
  }
  return evals;
}

/// The training length and, if the model supports them, multiples of it.
std::vector<int64_t> default_lengths(const LanguageModelConfig& config) {
  const int64_t length = config.train_length > 0 ? config.train_length : 128;
  if (const std::optional<int64_t> end = model::end_of_positions(config.transformer)) return {std::min(length, *end)};
  return {length, 2 * length, 4 * length, 8 * length};
}

/// The first position that all windows score. Earlier positions are scored only in the first window, which has no
/// preceding text.
size_t first_position(const Evaluation& evaluation) {
  const auto all = evaluation.position_tokens.size();
  const auto context = static_cast<size_t>(evaluation.length - evaluation.stride);
  return context < all ? context : 0;  // there was only one window
}

nlohmann::ordered_json positions_json(const Evaluation& evaluation) {
  auto nll = nlohmann::ordered_json::array(), tokens = nlohmann::ordered_json::array();
  const size_t first = first_position(evaluation);
  for (size_t i = first; i < evaluation.position_nll.size();
       ++i) {  // an encoder has no loss at some positions: NaN, written as null
    nll.push_back(evaluation.position_nll[i] / static_cast<double>(evaluation.position_tokens[i]));
    tokens.push_back(evaluation.position_tokens[i]);
  }
  return {{"length", evaluation.length},
          {"stride", evaluation.stride},
          {"first_position", first},
          {"nll", nll},
          {"tokens", tokens}};
}

/// Prints the positions 0, 1, 2, 4, 8, ..., because the loss falls fast at first and then slowly.
void print_positions(const Evaluation& evaluation) {
  say("\n{:>17}  {:>8}  {:>9}\n", fmt::format("position (of {})", evaluation.length), "nll", "tokens");
  const size_t first = first_position(evaluation), count = evaluation.position_nll.size();
  for (size_t begin = first, end = first + 1; begin < count;
       begin = end, end = std::min(count, first + 2 * (end - first))) {
    double nll = 0;
    int64_t tokens = 0;
    for (size_t i = begin; i < end; ++i) {
      nll += evaluation.position_nll[i];
      tokens += evaluation.position_tokens[i];
    }
    if (tokens == 0) continue;
    const std::string range = end - begin == 1 ? std::to_string(begin) : fmt::format("{}-{}", begin, end - 1);
    say("{:>17}  {:>8.4f}  {:>9}\n", range, nll / static_cast<double>(tokens), tokens);
  }
}

/// Prints loss and speed along the text.
void print_spans(const StreamEvaluation& stream) {
  say("\n{:>17}  {:>8}  {:>9}  {:>8}\n", "place in the text", "nll", "tokens", "tokens/s");
  for (const StreamSpan& span : stream.spans) {
    const auto tokens = static_cast<double>(span.end - span.begin);
    say("{:>17}  {:>8.4f}  {:>9}  {:>8}\n", fmt::format("{}-{}", span.begin, span.end - 1), span.nll_sum / tokens,
        span.end - span.begin, core::format_count(tokens / span.seconds));
  }
}

nlohmann::ordered_json results_json(const EvalCommand& options, const LanguageModel& model, int64_t bytes,
                                    const FilesRead& files, const std::optional<double>& trained_on,
                                    nlohmann::ordered_json evals) {
  return {{"model", options.text.model},
          {"position", name_of(model.config().transformer.position)},
          {"train_length", model.config().train_length},
          {"interpolate", model::interpolation_json(model.interpolation())},
          {"precision", name_of(model.precision())},
          {"threads", threads()},
          {"bytes", bytes},
          {"skipped", skipped_json(files)},
          {"part_trained_on", trained_on ? nlohmann::ordered_json(*trained_on) : nullptr},
          {"peak_bytes", peak_resident_bytes()},
          {"scoring", options.scoring},
          {"eval", std::move(evals)}};
}

/// --scoring harness and llama.
void run_convention(const EvalCommand& options, const LanguageModel& model, const std::vector<int64_t>& lengths) {
  FilesRead files;
  const std::vector<text::Document> documents = documents_of(options.text, options.scoring, files);
  warn_of_skipped(files);
  const ScoredText text = encoded(options.text, model.tokenizer(), documents);
  const std::optional<double> trained_on = part_trained_on(options.text, text);
  reset_peak_resident_bytes();
  nlohmann::ordered_json evals = options.scoring == "harness" ? evaluate_as_harness(model, documents, lengths)
                                                              : evaluate_as_llama(model, documents, lengths);
  options.write_json(results_json(options, model, text.bytes, files, trained_on, std::move(evals)));
}

/// The cost of the precision of weights, products and cache: the perplexity with the weights of the file, computed in
/// float32. Prints it and adds it to a result.
void add_float32(double perplexity, double float32, nlohmann::ordered_json& json) {
  const double cost = perplexity / float32 - 1;
  say("{:>8}  {:>{}}  perplexity {:+.4f} %\n", "float32", core::format_perplexity(float32), 10, 100 * cost);
  json["float32_perplexity"] = float32;
  json["perplexity_cost"] = cost;
}

/// The same model with the weights of its file and products in float32.
std::optional<LanguageModel> float32_model(const EvalCommand& options) {
  if (!options.check_float32) return {};
  LanguageModel model = LanguageModel::load(options.text.model);
  ModelUse use;
  use.interpolation = options.use.interpolation;
  use.apply(model);
  return model;
}

/// The parts of the text that are scored with --eval-tokens. Each is as long as the longest window, so all lengths
/// score the same tokens.
std::vector<Segment> segments_of(const EvalCommand& options, const LanguageModel& model,
                                 const std::vector<int64_t>& lengths, const ScoredText& text) {
  if (!options.eval_tokens) return {};
  const int64_t all = std::ssize(text.stream.tokens);
  const std::vector<int64_t> usual = default_lengths(model.config());
  const int64_t longest = std::ranges::max(lengths.empty() ? usual : lengths);
  check_usage(std::min(*options.eval_tokens, all) >= std::min(longest, all),
              "[eval] --eval-tokens is {}, expected at least the longest length, {}", *options.eval_tokens, longest);
  return evaluation::spread_blocks(all, *options.eval_tokens, longest);
}

void run_eval(EvalCommand& options, const Command& command) {
  join_ranks(command);
  options.apply();
  check_texts_of_ranks(options.text.texts);
  check_context_limits("eval", options.context);
  check_texts(options.text);
  const bool windows = options.scoring == kScorings[0];
  check_usage(std::find(std::begin(kScorings), std::end(kScorings), options.scoring) != std::end(kScorings),
              "[eval] there is no scoring called '{}'; choose from {}", options.scoring, fmt::join(kScorings, ", "));
  check_usage(windows || (!options.stride && !options.eval_tokens && !options.one_pass && !options.per_position &&
                          !options.check_float32),
              "[eval] --stride, --eval-tokens, --one-pass, --per-position and --check-float32 apply to --scoring "
              "windows; leave "
              "them out, or --scoring {}",
              options.scoring);
  check_usage(
      options.one_pass || !(options.context.evicts() || options.context.cached),
      "[eval] --cache-type, --memory and --eviction-tolerance apply to --one-pass only; add --one-pass, or leave "
      "them out");
  LanguageModel model = LanguageModel::load(options.text.model);
  options.use.apply(model);
  const std::optional<LanguageModel> float32 = float32_model(options);
  std::vector<int64_t> lengths = options.lengths;
  if (lengths.empty() && !options.one_pass) lengths = default_lengths(model.config());
  if (!windows) return is_first_rank() ? run_convention(options, model, lengths) : void();
  for (const int64_t length : lengths) {
    check_usage(options.stride.value_or(1) <= length, "[eval] the stride is {}, expected at most the length, {}",
                options.stride.value_or(1), length);
  }
  const ScoredText text =
      with_progress([&](const TextProgress& progress) { return text_of(options.text, model.tokenizer(), progress); });
  const std::vector<Segment> segments = segments_of(options, model, lengths, text);
  const int64_t all = std::ssize(text.stream.tokens), to_score = segments.empty() ? all : evaluation::size_of(segments);
  const int64_t bytes = comparison::bytes_of(model.tokenizer(), text.stream.tokens, text.bytes, segments);
  warn_of_skipped(text.files);
  const std::optional<double> trained_on = part_trained_on(options.text, text);

  check_same_machines();
  if (world() != nullptr) {
    ranks::check_same(*world(), {{"the hash of the text", training::fingerprint(text.stream.tokens)},
                                 {"the hash of the weights", training::weights_digest(model)}});
  }
  reset_peak_resident_bytes();
  auto evals = nlohmann::ordered_json::array();
  auto positions = nlohmann::ordered_json::array();
  std::vector<Evaluation> evaluations;
  // There is a stride column only if --stride was given. Without it, windows do not overlap.
  const auto stride_column = [&](const auto& stride) {
    return options.stride ? fmt::format("{:>8}  ", stride) : std::string();
  };
  say("{:>8}  {}{:>10}  {:>10}  {:>9}  {:>8}\n", "length", stride_column("stride"), "perplexity", "bits/byte", "tokens",
      "tokens/s");
  for (const int64_t length : lengths) {
    EvaluateOptions evaluate_options;
    evaluate_options.length = length;
    evaluate_options.stride = options.stride.value_or(length);
    evaluate_options.segments = segments;
    const Evaluation evaluation = evaluate_with_progress(model, text.stream.tokens, evaluate_options, world());
    const int64_t scored = scored_bytes(evaluation, bytes, to_score);
    say("{:>8}  {}{:>10}  {:>10.4f}  {:>9}  {:>8}\n", length, stride_column(evaluation.stride),
        core::format_perplexity(evaluation.perplexity()), evaluation.bits_per_byte(scored), evaluation.tokens,
        core::format_count(evaluation.tokens_per_second()));
    evals.push_back(evaluation_json(evaluation, scored));
    if (float32) {
      const Evaluation exact = evaluate_with_progress(*float32, text.stream.tokens, evaluate_options, world());
      add_float32(evaluation.perplexity(), exact.perplexity(), evals.back());
    }
    positions.push_back(positions_json(evaluation));
    if (options.per_position) evaluations.push_back(evaluation);
  }
  if (!is_first_rank()) return;  // one pass is of one process
  std::optional<StreamEvaluation> stream;
  nlohmann::ordered_json of_stream = nlohmann::ordered_json::object();
  if (options.one_pass) {
    stream = evaluate_stream_with_progress(model, text.stream.tokens, options.context, segments);
    say("{:>8}  {}{:>10}  {:>10.4f}  {:>9}  {:>8}\n", "one-pass", stride_column(1),
        core::format_perplexity(stream->perplexity()), stream->bits_per_byte(bytes), stream->tokens,
        core::format_count(stream->tokens_per_second()));
    if (float32) {
      ContextOptions context = options.context;
      context.cached = DType::float32;
      const StreamEvaluation exact = evaluate_stream_with_progress(*float32, text.stream.tokens, context, segments);
      add_float32(stream->perplexity(), exact.perplexity(), of_stream);
    }
  }
  const auto longest = std::max_element(lengths.begin(), lengths.end());
  if (longest != lengths.end() && *longest > all) {
    say("The text has {} tokens, fewer than the length {}, so it is scored in one window\n", core::format_integer(all),
        core::format_integer(*longest));
  }
  if (stream) {
    say("Memory for keys and values in the pass: {}\n{}", core::format_bytes(stream->cache_bytes),
        describe_evicted(stream->certificate));
  }
  for (const Evaluation& evaluation : evaluations) print_positions(evaluation);
  if (stream && options.per_position) print_spans(*stream);

  nlohmann::ordered_json json = results_json(options, model, bytes, text.files, trained_on, std::move(evals));
  if (stream) {
    json["stream"] = stream_json(*stream, bytes);
    json["stream"].update(of_stream);
    json["stream"]["evicted"] = evicted_json(options.context, stream->certificate);
  }
  if (options.per_position) json["per_position"] = positions;
  options.write_json(json);
}

}  // namespace

void add_eval(CLI::App& app) {
  auto options = std::make_shared<EvalCommand>();
  Command command(app, "eval", "Measure the perplexity of a model on text, at any length");
  command.model(options->text.model);
  command.texts(options->text.texts, false,
                "Text files, folders of text files, a folder written by `alibi tokenize`, or - for standard input");
  command.flag("--held-out", options->text.held_out,
               "Evaluate on the text that `alibi train` held out for this model, instead of TEXT");
  command.counts("--lengths", options->lengths, "Window lengths in tokens [1, 2, 4 and 8 times the training length]");
  command.count("--stride", options->stride,
                "Number of tokens by which the window advances; smaller values give more context [the window length]");
  command.count("--eval-tokens", options->eval_tokens,
                "Number of tokens to score, in blocks spread evenly over the text [all]");
  command.flag("--one-pass", options->one_pass,
               "Evaluate in one pass, where each token sees all preceding text; add --lengths to evaluate windows too");
  command.text("--scoring", options->scoring, "NAME",
               "What is scored: windows; harness (each document, as lm-evaluation-harness); llama (half chunks, as "
               "llama-perplexity)",
               {std::begin(kScorings), std::end(kScorings)});
  options->use.add_to(command);
  add_context_limits(command, options->context);
  command.flag(
      "--check-float32", options->check_float32,
      "Also evaluate with the file's weights in float32, and show what --weights, --precision and --cache-type "
      "cost");
  command.flag("--per-position", options->per_position,
               "Also print the loss by position in the window, and with --one-pass along the text");
  add_field(command, options->text.field);
  options->add_to(command);
  command.examples(
      "  alibi eval model/ novels/valid\n"
      "  alibi eval model/ --held-out\n"
      "  alibi eval model/ book.txt --lengths 128,1024,65536 --json eval.json\n"
      "  alibi eval model/ book.txt --one-pass\n"
      "  alibi eval model/ book.txt --interpolate dynamic      (multiplies positions by training length / length)\n"
      "  alibi eval model/ library/ --one-pass --memory 256MiB\n"
      "  alibi eval model/ book.txt --weights q8_0 --check-float32\n"
      "  alibi eval model/ book.txt --lengths 512 --stride 64 --per-position\n"
      "  alibi eval model/ book.txt --scoring harness --lengths 2048");
  command.runs_over_ranks([options, command] { run_eval(*options, command); });
}

}  // namespace alibi::cli
