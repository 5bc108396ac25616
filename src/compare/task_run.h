// One run of a comparison on a task: its training tokens, its questions, and the answers of the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "alibi/loglikelihood.h"
#include "alibi/training_data.h"
#include "compare/run.h"
#include "compare/run_store.h"
#include "compare/tasks.h"

namespace alibi::comparison {

/// Training tokens: sequences of `settings.train_length` tokens, each of which ends with the end of text of bytes.
/// Equal arguments give equal tokens.
struct TaskData {
  TrainingData data;            ///< the tokenizer is that of bytes; there is no held-out text
  std::vector<uint8_t> scored;  ///< for each token, whether it is part of an answer
};
TaskData task_data(const Task& task, const TaskSettings& settings, int64_t tokens, uint64_t seed);

/// Questions of one length and one range of distances.
struct TaskQuestions {
  int64_t length = 0;                    ///< tokens of a sequence, with the end of text at its beginning
  int64_t distance = 0;                  ///< largest distance of the range
  int64_t nearest = 0;                   ///< smallest distance of the range
  std::vector<Continuation> texts = {};  ///< the targets are the answer
};

/// The questions of a test: lengths of 1, 2, 4, 8 and 16 times the training length, and for each length ranges of
/// distances that end at 1/8, 1/4, 1/2, 1 ... times the training length, as far as the length allows. `texts` is empty.
std::vector<TaskQuestions> planned_questions(const Task& task, int64_t train_length);
/// Draws `count` questions. Distances are uniform in the range.
void draw_questions(const Task& task, const TaskSettings& settings, int64_t count, uint64_t seed, TaskQuestions& of);

/// Text that hides passkeys, in training and in questions. Empty if there is no text.
struct TaskFillers {
  std::string train, valid;
};
TaskFillers task_fillers(const TrainingData& text);

/// The options of a training on a task. Unless the warmup is given, it has at least 300 updates or a quarter of all:
/// after a short one, models often continue to guess among the values in the text.
TrainOptions task_training(TrainOptions train, int64_t tokens);

/// run_to_end() of a run on a task. `setting` is that of the comparison.
StoredRun run_task(const RunSetting& setting, const TaskFillers& fillers, const TrainOptions& train, StoredRun run,
                   const RunProgress& progress);

}  // namespace alibi::comparison
