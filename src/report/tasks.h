// Accuracy of the models on synthetic tasks, and how far they answer.
#pragma once

#include <string>
#include <vector>

#include "alibi/results.h"
#include "report/line_chart.h"
#include "report/table.h"

namespace alibi::report {

/// A method answers at a distance if the 95 % interval of its accuracy lies above this number.
inline constexpr double kReliable = 0.9;

/// The largest length at which, as at all shorter ones, a method answers at the smallest distances, and the largest
/// distance up to which it answers in sequences of this length. Zeros: it does not even answer at the training length.
struct TaskReach {
  int64_t length = 0, distance = 0;
};
TaskReach reach_of(const MethodResults& method);

/// "alibi answers up to distance 64 in texts of up to 1,024 tokens", for all methods; the farthest comes first.
std::string reach_text(const TaskResults& task, bool farthest_only = false);
/// One sentence for each task. With more than two tasks, it only names the methods that answer farthest.
std::vector<std::string> task_sentences(const CompareResults& results);

/// One row per task, one column per method: largest distance and largest length.
Table reach_table(const CompareResults& results);
/// Accuracy at the longest length by distance; of a task with one distance only, by length.
Table accuracy_table(const TaskResults& task);
LineChart accuracy_chart(const TaskResults& task);

/// The section of the page: a figure and a table for each task. Empty if there are no tasks.
std::string tasks_section(const CompareResults& results);

/// The longest length of all tasks, or 0.
int64_t longest_of_tasks(const CompareResults& results);

}  // namespace alibi::report
