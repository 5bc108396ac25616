// Properties of the results that tables, figures and the verdict share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "alibi/results.h"

namespace alibi::report {

/// Whether the point has a result: it is not a gap, and its perplexity is finite and positive.
bool measured(const EvaluationPoint& point);

/// The evaluation at this length, or null if this length was not evaluated. The result may be a gap.
const EvaluationPoint* evaluation_at(const RunResults& run, int64_t length);
/// The evaluation at this length, or null if it has no result (see measured()).
const EvaluationPoint* measured_at(const RunResults& run, int64_t length);
/// The longest length that has a result, or 0.
int64_t longest_measured(const MethodResults& method);

/// Whether a loss is close to, or above, the loss of a table of token pairs (HeldOut::bigram_nll). Such a model has not
/// learned to use more than one token. Returns false if the loss of the table is unknown.
bool is_near_bigram(double nll, double bigram_nll);
/// Whether is_near_bigram() holds for the method at its training length. Its results at other lengths then mean
/// nothing.
bool has_not_learned(const CompareResults& results, const MethodResults& method);
/// "sinusoidal (25.4) has not learned: ..." with advice, or "" if all methods have learned.
std::string not_learned_note(const CompareResults& results);

/// The change of perplexity that a difference of nll means: "+9.6 %", or "×2.21" from 50 % on. All sentences and tables
/// use this form.
std::string change_text(double nll);
/// change_text() followed by its 95 % interval in parentheses, if the interval is known.
std::string change_text(double nll, const Interval& interval);

/// Whether any perplexity has a 95 % interval.
bool has_intervals(const CompareResults& results);

/// "3.67 (3.60 to 3.74)": the perplexity with its interval, if the interval is known.
std::string perplexity_text(const EvaluationPoint& point);

/// A method answers at a distance if the 95 % interval of its accuracy lies above this number.
inline constexpr double kReliable = 0.9;

/// Largest length and largest distance of answers whose `value`, such as an end of the interval of the accuracy, lies
/// above kReliable (MethodResults).
struct Reach {
  int64_t length = 0, distance = 0;
};
Reach reach_of(const std::vector<AnswerPoint>& points, double (*value)(const AnswerPoint&));

/// The points of the runs with this length and distance; fewer than runs if some lack it.
std::vector<AnswerPoint> answers_at(const std::vector<RunResults>& runs, int64_t length, int64_t distance);

/// "3", or "1 to 3" while some methods lack runs.
std::string number_of_seeds(const std::vector<MethodResults>& methods);

/// The training lengths of the methods: "128", or "128, 256 and 512".
std::string training_lengths(const CompareResults& results);
/// Whether all methods were trained at one length.
bool has_one_training_length(const CompareResults& results);

/// "a, b and c"
std::string join_words(const std::vector<std::string>& words);

/// One way to evaluate the same targets, with the result of each method. A result is null if it was not requested.
struct WayToRead {
  std::string name;
  std::vector<const EvaluationPoint*> points;  ///< one for each method
};
/// Windows of the training length and of the longest length, sliding windows and scaled positions at the longest
/// length, and one pass over all text. Empty if only non-overlapping windows were evaluated.
std::vector<WayToRead> ways_to_read(const CompareResults& results);

/// "bytes", "words", "bpe tokens"; "tokens" if the kind of tokenizer is unknown.
std::string token_name(const CompareResults& results);

/// All lengths at which any method was evaluated, rising.
std::vector<int64_t> all_lengths(const CompareResults& results);

/// "Training at 128", "Evaluation at 2,048".
std::string work_name(const SpeedPoint& point);
/// Explains "all keys" and says how much other work on the machine disturbed the speed measurement.
std::string speed_note(const CompareResults& results);

}  // namespace alibi::report
