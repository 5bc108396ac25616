// Accuracy of the models on synthetic tasks, and how far they answer.
#pragma once

#include <string>
#include <vector>

#include "alibi/results.h"
#include "report/line_chart.h"
#include "report/table.h"

namespace alibi::report {

/// "recall", or "recall beside text".
std::string title_of(const TaskResults& task);

/// "alibi answers up to distance 64 and in texts of up to 1,024 tokens", for all methods; the farthest comes first.
std::string reach_text(const TaskResults& task, bool farthest_only = false);
/// A warning if methods fail the task that all must learn, or answer beyond their training length the one that hardly
/// any can; else "".
std::string control_note(const TaskResults& task);
/// One sentence for each task, after the warnings and before what the numbers are from. With more than two tasks,
/// or methods on text, it only names the methods that answer farthest.
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
