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

struct TaskData {
  TrainingData data;
  std::vector<uint8_t> scored;  ///< for each training token, whether it is predicted; empty: all are
};
/// Sequences of `settings.train_length` tokens, each of which ends with the end of text of bytes. Only answers are
/// predicted. Equal arguments give equal tokens. There is no held-out text.
TaskData task_data(const Task& task, const TaskSettings& settings, int64_t tokens, uint64_t seed);

/// Number of sequences of tasks among the sequences of an update.
int64_t rows_of_tasks(double share, int64_t sequences);
/// The tokens of a training on text and tasks, in one epoch: in each update, a share of the sequences belongs to the
/// tasks in turn, and the others are the blocks of the text in the order of a training on the text alone. The first
/// token of each is not predicted, because another sequence stands before it. The tokens of the text are bytes.
TaskData mixed_data(const TrainingData& text, const std::vector<std::string>& tasks, const TaskSettings& settings,
                    double share, const TrainOptions& train);

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

/// run_to_end() of a run on a task, or on text and tasks. `setting` is that of the comparison.
StoredRun run_with_tasks(const RunSetting& setting, const TaskFillers& fillers, const TrainOptions& train,
                         StoredRun run, const RunProgress& progress);

}  // namespace alibi::comparison
