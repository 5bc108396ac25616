// Synthetic tasks that tell whether a model uses far text. docs/reference/evaluation.md describes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace alibi::comparison {

/// Bytes of a sequence. `scored[i]` is 1 if byte i is part of an answer, else 0.
struct TaskText {
  std::string bytes, scored;

  void add(const std::string& text, bool is_scored = false) {
    bytes += text;
    scored.append(text.size(), is_scored ? '\1' : '\0');
  }
};

/// What a generator may use beside its random numbers.
struct TaskSettings {
  int64_t train_length = 128;  ///< decides how many pairs or copied tokens a sequence has
  std::string_view filler;     ///< passkey: the text that hides the key; if empty, random letters
};

class Dice;

/// The distance of a question is the number of tokens from the information to the answer: 1 if they are neighbours.
struct Task {
  const char* name;
  const char* meaning;   ///< what is asked, for help and report
  double chance;         ///< accuracy of random answers of the right kind
  int64_t min_distance;  ///< smallest possible distance
  int64_t (*max_distance)(int64_t bytes);
  /// `bytes` bytes of training text. Distances vary.
  TaskText (*practice)(const TaskSettings& settings, int64_t bytes, Dice& dice);
  /// `bytes` bytes that end in the answer of one question, whose distance is `distance`, or one less where the task
  /// has even distances only.
  TaskText (*ask)(const TaskSettings& settings, int64_t bytes, int64_t distance, Dice& dice);
};

const std::vector<Task>& all_tasks();
/// Throws UsageError with the valid names.
const Task& task_from(std::string_view name);

/// Shortest training length of a task.
inline constexpr int64_t kShortestTask = 16;

}  // namespace alibi::comparison
