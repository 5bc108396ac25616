// Properties of the results that tables, figures and the verdict share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "alibi/results.h"

namespace alibi::report {

/// Whether a number was measured: there is no gap, and the perplexity is finite and positive.
bool measured(const EvaluationPoint& point);

/// The evaluation at this length, measured or not; null if the length was not tried.
const EvaluationPoint* evaluation_at(const MethodResults& method, int64_t length);
/// The same, but null also where nothing was measured.
const EvaluationPoint* measured_at(const MethodResults& method, int64_t length);
/// The longest length with a number, or 0.
int64_t longest_measured(const MethodResults& method);

/// Whether a loss is so near that of a table of token pairs (HeldOut::bigram_nll), or above it, that the model has not
/// learned to use more than one token. False where the table's loss is not known.
bool is_near_bigram(double nll, double bigram_nll);
/// The same of a method at its training length. What its curve does at other lengths then means nothing.
bool has_not_learned(const CompareResults& results, const MethodResults& method);
/// "sinusoidal (25.4) has not learned: ...", and what to do; empty if all have.
std::string not_learned_note(const CompareResults& results);

/// "+9.6 %", or "×2.21" where it is more: what a difference of nll is as a change of perplexity. Every sentence and
/// table says it in this form.
std::string change_text(double nll);
/// The same with its 95 % interval in brackets, if it is known.
std::string change_text(double nll, const Interval& interval);

/// "3.67 (3.60 to 3.74)": with the interval, if it is known.
std::string perplexity_text(const EvaluationPoint& point);

/// "a, b and c"
std::string join_words(const std::vector<std::string>& words);

/// A way of reading the same targets, with the result of each method; null if it was not asked for.
struct WayToRead {
  std::string name;
  std::vector<const EvaluationPoint*> points;  ///< of each method
};
/// Windows of the training length and of the longest, that length with a sliding window and with flatter slopes, and
/// one pass over all. Empty if there is nothing but windows that do not overlap.
std::vector<WayToRead> ways_to_read(const CompareResults& results);

/// "bytes", "words", "bpe tokens"; "tokens" where the kind is not known.
std::string token_name(const CompareResults& results);

const MethodResults* find_method(const CompareResults& results, const char* name);

/// All lengths tried by any method, rising.
std::vector<int64_t> all_lengths(const CompareResults& results);

/// "Training at 128", "Evaluation at 2,048".
std::string work_name(const SpeedPoint& point);
/// What a reader has to know of the speeds: what "all keys" means, and how far other work on the machine disturbed
/// them.
std::string speed_note(const CompareResults& results);

}  // namespace alibi::report
