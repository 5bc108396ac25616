#include "compare/task_run.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <span>
#include <utility>

#include "compare/dice.h"
#include "core/random.h"
#include "train/batches.h"

namespace alibi::comparison {
namespace {

/// The sequence as tokens, with an end of text before it.
std::vector<int32_t> tokens_of(const TaskText& text, int32_t end_of_text) {
  std::vector<int32_t> ids = {end_of_text};
  for (const char byte : text.bytes) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

/// Writes the sequence with this number as tokens, with an end of text after it, and which of them are predicted.
void write_practice(const Task& task, const TaskSettings& settings, uint64_t seed, int64_t number, int32_t* ids,
                    uint8_t* scored) {
  Dice dice(seed, core::mix(0x7a5c, static_cast<uint64_t>(number)));
  const TaskText text = task.practice(settings, settings.train_length - 1, dice);
  std::transform(text.bytes.begin(), text.bytes.end(), ids, [](char byte) { return static_cast<unsigned char>(byte); });
  std::copy(text.scored.begin(), text.scored.end(), scored);
  ids[settings.train_length - 1] = ByteTokenizer().end_of_text();
  scored[settings.train_length - 1] = 0;
}

}  // namespace

TaskData task_data(const Task& task, const TaskSettings& settings, int64_t tokens, uint64_t seed) {
  const int64_t length = settings.train_length, sequences = std::max<int64_t>(1, tokens / length);
  const auto ids = std::make_shared<std::vector<int32_t>>(sequences * length);
  TaskData result;
  result.scored.resize(ids->size());
  for (int64_t i = 0; i < sequences; ++i) {
    write_practice(task, settings, seed, i, ids->data() + i * length, result.scored.data() + i * length);
  }
  result.data.tokenizer = std::make_shared<ByteTokenizer>();
  result.data.train = {*ids, ids};
  return result;
}

int64_t rows_of_tasks(double share, int64_t sequences) {
  return std::max<int64_t>(1, std::llround(share * static_cast<double>(sequences)));
}

TaskData mixed_data(const TrainingData& text, const std::vector<std::string>& tasks, const TaskSettings& settings,
                    double share, const TrainOptions& train) {
  const int64_t length = train.train_length, sequences = training::blocks_per_update(train);
  const int64_t of_tasks = rows_of_tasks(share, sequences);
  const auto ids = std::make_shared<std::vector<int32_t>>(train.steps() * sequences * length);
  TaskData result{text, std::vector<uint8_t>(ids->size(), 1)};
  result.data.train = {*ids, ids};
  training::BlockOrder order(*ids, length, 0, train.seed), of_text(text.train.tokens, length, 0, train.seed);
  int64_t questions = 0, blocks = 0;
  for (int64_t i = 0; i < order.blocks_per_epoch(); ++i) {
    const int64_t first = order.block_at(i) * length;
    if (i % sequences < of_tasks) {
      const std::string& task = tasks[static_cast<size_t>(questions % std::ssize(tasks))];
      write_practice(task_from(task), settings, train.seed, questions, ids->data() + first,
                     result.scored.data() + first);
      ++questions;
      continue;
    }
    int64_t block = of_text.block_at(blocks++);
    while (of_text.length_of(block) < length) block = of_text.block_at(blocks++);  // the last one may be shorter
    std::copy_n(text.train.tokens.begin() + block * length, length, ids->begin() + first);
    result.scored[static_cast<size_t>(first)] = 0;
  }
  return result;
}

std::vector<TaskQuestions> planned_questions(const Task& task, int64_t train_length) {
  std::vector<TaskQuestions> plan;
  const int64_t farthest_of_all = task.max_distance(16 * train_length - 1);
  for (int64_t length = train_length; length <= 16 * train_length; length *= 2) {
    int64_t nearest = task.min_distance;
    for (int64_t end = std::max<int64_t>(1, train_length / 8); end <= length; end *= 2) {
      const int64_t farthest = std::min(end, task.max_distance(length - 1));
      if (farthest < nearest) continue;
      plan.push_back({.length = length, .distance = std::min(end, farthest_of_all), .nearest = nearest});
      nearest = end + 1;
    }
  }
  return plan;
}

void draw_questions(const Task& task, const TaskSettings& settings, int64_t count, uint64_t seed, TaskQuestions& of) {
  const int32_t end_of_text = ByteTokenizer().end_of_text();
  const int64_t farthest = std::min(of.distance, task.max_distance(of.length - 1));
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

StoredRun run_with_tasks(const RunSetting& setting, const TaskFillers& fillers, const TrainOptions& train,
                         StoredRun run, const RunProgress& progress) {
  const CompareOptions& options = setting.options;
  const TaskSettings settings{train.train_length, fillers.train};
  const std::string& task = run.results.task.name;
  const TaskData practice = task.empty() ? mixed_data(setting.data, options.tasks, settings, options.task_share, train)
                                         : task_data(task_from(task), settings, train.train_tokens, train.seed);
  const RunSetting of_tasks{.options = options,
                            .data = practice.data,
                            .held_out = setting.held_out,
                            .held_out_bytes = setting.held_out_bytes,
                            .store = setting.store,
                            .questions = {train.train_length, fillers.valid},
                            .scored = practice.scored};
  return run_to_end(of_tasks, train, std::move(run), progress);
}

}  // namespace alibi::comparison
