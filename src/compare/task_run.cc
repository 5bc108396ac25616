#include "compare/task_run.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <span>
#include <utility>

#include "compare/dice.h"
#include "core/random.h"

namespace alibi::comparison {
namespace {

/// The sequence as tokens, with an end of text before it.
std::vector<int32_t> tokens_of(const TaskText& text, int32_t end_of_text) {
  std::vector<int32_t> ids = {end_of_text};
  for (const char byte : text.bytes) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

}  // namespace

TaskData task_data(const Task& task, const TaskSettings& settings, int64_t tokens, uint64_t seed) {
  TaskData result;
  const auto tokenizer = std::make_shared<ByteTokenizer>();
  auto ids = std::make_shared<std::vector<int32_t>>();
  const int64_t length = settings.train_length, sequences = std::max<int64_t>(1, tokens / length);
  for (int64_t i = 0; i < sequences; ++i) {
    Dice dice(seed, core::mix(0x7a5c, static_cast<uint64_t>(i)));
    const TaskText text = task.practice(settings, length - 1, dice);
    for (const char byte : text.bytes) ids->push_back(static_cast<unsigned char>(byte));
    ids->push_back(tokenizer->end_of_text());
    result.scored.insert(result.scored.end(), text.scored.begin(), text.scored.end());
    result.scored.push_back(0);
  }
  result.data.tokenizer = tokenizer;
  result.data.train = {*ids, ids};
  return result;
}

std::vector<TaskQuestions> planned_questions(const Task& task, int64_t train_length) {
  std::vector<TaskQuestions> plan;
  const int64_t farthest_of_all = task.most_distance(16 * train_length - 1);
  for (int64_t length = train_length; length <= 16 * train_length; length *= 2) {
    int64_t nearest = task.least_distance;
    for (int64_t end = std::max<int64_t>(1, train_length / 8); end <= length; end *= 2) {
      const int64_t farthest = std::min(end, task.most_distance(length - 1));
      if (farthest < nearest) continue;
      plan.push_back({.length = length, .distance = std::min(end, farthest_of_all), .nearest = nearest});
      nearest = end + 1;
    }
  }
  return plan;
}

void draw_questions(const Task& task, const TaskSettings& settings, int64_t count, uint64_t seed, TaskQuestions& of) {
  const int32_t end_of_text = ByteTokenizer().end_of_text();
  const int64_t farthest = std::min(of.distance, task.most_distance(of.length - 1));
  of.texts.clear();
  for (int64_t i = 0; i < count; ++i) {
    Dice dice(seed, core::mix(0xa5c, static_cast<uint64_t>(of.length), static_cast<uint64_t>(of.distance),
                              static_cast<uint64_t>(i)));
    const TaskText text = task.ask(settings, of.length - 1, dice.between(of.nearest, farthest), dice);
    of.texts.push_back({tokens_of(text, end_of_text), std::count(text.scored.begin(), text.scored.end(), '\1')});
  }
}

TaskFillers task_fillers(const TrainingData& text) {
  constexpr size_t most = 1 << 20;  // tokens
  const auto beginning = [&](std::span<const int32_t> tokens) {
    return text.tokenizer->decode(tokens.first(std::min(most, tokens.size())));
  };
  return {beginning(text.train.tokens), beginning(text.valid.tokens)};
}

TrainOptions task_training(TrainOptions train, int64_t tokens) {
  train.train_tokens = tokens;
  const int64_t warmup = std::min<int64_t>(300, train.steps() / 4);
  if (train.warmup_steps < 0 && train.schedule().warmup_steps < warmup) train.warmup_steps = warmup;
  return train;
}

StoredRun run_task(const RunSetting& setting, const TaskFillers& fillers, const TrainOptions& train, StoredRun run,
                   const RunProgress& progress) {
  const Task& task = task_from(run.results.task.name);
  const TaskData practice = task_data(task, {train.train_length, fillers.train}, train.train_tokens, train.seed);
  const RunSetting of_task{.options = setting.options,
                           .data = practice.data,
                           .held_out = setting.held_out,
                           .store = setting.store,
                           .task = &task,
                           .questions = {train.train_length, fillers.valid},
                           .scored = practice.scored};
  return run_to_end(of_task, train, std::move(run), progress);
}

}  // namespace alibi::comparison
