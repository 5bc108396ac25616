#include "report/merge.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "core/check.h"
#include "report/summarize.h"

namespace alibi::report {
namespace {

void check_same_text(const NamedResults& first, const NamedResults& other) {
  const CompareResults &a = first.results, &b = other.results;
  const auto differs = [&](std::string_view what, const auto& found, const auto& expected) {
    fail("[report] {} and {} cannot be merged: {} is {} in the first and {} in the second", first.name, other.name,
         what, expected, found);
  };
  if (a.tokenizer != b.tokenizer) differs("the tokenizer", b.tokenizer, a.tokenizer);
  if (a.vocab_size != b.vocab_size) differs("the size of the vocabulary", b.vocab_size, a.vocab_size);
  if (a.train_bytes != b.train_bytes) differs("the training text in bytes", b.train_bytes, a.train_bytes);
  if (a.valid_bytes != b.valid_bytes) differs("the held-out text in bytes", b.valid_bytes, a.valid_bytes);
  if (a.held_out.bytes != b.held_out.bytes) differs("the scored text in bytes", b.held_out.bytes, a.held_out.bytes);
  if (a.held_out.block_tokens != b.held_out.block_tokens) {
    differs("the number of scored blocks", b.held_out.block_tokens.size(), a.held_out.block_tokens.size());
  }
}

bool same_answers(const TaskAnswers& a, const TaskAnswers& b) {
  return std::equal(a.points.begin(), a.points.end(), b.points.begin(), b.points.end(),
                    [](const AnswerPoint& x, const AnswerPoint& y) {
                      return x.length == y.length && x.distance == y.distance && x.questions == y.questions &&
                             x.right == y.right;
                    });
}

bool same_results(const RunResults& a, const RunResults& b) {
  return std::equal(a.evaluations.begin(), a.evaluations.end(), b.evaluations.begin(), b.evaluations.end(),
                    [](const EvaluationPoint& x, const EvaluationPoint& y) {
                      return x.length == y.length && (x.nll == y.nll || (x.nll != x.nll && y.nll != y.nll));
                    }) &&
         same_answers(a.task, b.task) &&
         std::equal(a.answers.begin(), a.answers.end(), b.answers.begin(), b.answers.end(), same_answers);
}

/// Lists each setting that all parts share once.
void add_settings(CompareResults& all, const std::vector<NamedResults>& parts) {
  for (auto& [name, value] : all.settings) {
    std::vector<std::string> values;
    for (const NamedResults& part : parts) {
      const auto& settings = part.results.settings;
      const auto found = std::find_if(settings.begin(), settings.end(),
                                      [&key = name](const auto& entry) { return entry.first == key; });
      values.push_back(found == settings.end() ? "unknown" : found->second);
    }
    if (std::all_of(values.begin(), values.end(), [&](const std::string& other) { return other == values[0]; }))
      continue;
    value.clear();
    for (size_t i = 0; i < parts.size(); ++i) {
      value += fmt::format("{}{}: {}", i == 0 ? "" : "; ", parts[i].name, values[i]);
    }
  }
}

}  // namespace

CompareResults merge(const std::vector<NamedResults>& parts) {
  check(!parts.empty(), "[report] there are no results to report; expected at least one comparison");
  CompareResults all = parts.front().results;
  std::vector<RunResults> runs;
  std::vector<std::string> commands;
  all.seconds = 0;
  all.runs_planned = 0;
  for (const NamedResults& part : parts) {
    check_same_text(parts.front(), part);
    all.seconds += part.results.seconds;
    all.train_length = std::min(all.train_length, part.results.train_length);
    all.seed = std::min(all.seed, part.results.seed);
    if (part.results.machine != all.machine) all.machine += "; " + part.results.machine;
    commands.push_back(part.results.command);
    for (const std::string& note : part.results.notes) {
      if (std::find(all.notes.begin(), all.notes.end(), note) == all.notes.end()) all.notes.push_back(note);
    }
    for (RunResults& run : runs_of(part.results)) {
      if (!part.label.empty()) run.method += ", " + part.label;
      const auto earlier = std::find_if(runs.begin(), runs.end(), [&](const RunResults& other) {
        return other.method == run.method && other.train_length == run.train_length && other.seed == run.seed &&
               other.task.name == run.task.name;
      });
      if (earlier == runs.end()) {
        runs.push_back(run);
      } else {
        check(same_results(*earlier, run),
              "[report] {} and another input have different results for the run of {} at length {} from seed {}; "
              "give only one of them",
              part.name, run.method, run.train_length, run.seed);
      }
    }
  }
  if (parts.size() > 1) all.speed.clear();  // methods of different comparisons were not timed alternately
  all.runs_planned = static_cast<int64_t>(runs.size());
  take_runs(all, runs);
  all.command = fmt::format("{}", fmt::join(commands, "\n"));
  add_settings(all, parts);
  return all;
}

}  // namespace alibi::report
