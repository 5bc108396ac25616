// Questions that tables, figures and the verdict all ask of the results.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "alibi/results.h"

namespace alibi::report {

/// A number was measured there: no gap, and the perplexity is finite and positive.
bool measured(const EvaluationPoint& point);

/// The evaluation at this length, measured or not; null if the length was not tried.
const EvaluationPoint* evaluation_at(const MethodResults& method, int64_t length);
/// The same, but null also where nothing was measured.
const EvaluationPoint* measured_at(const MethodResults& method, int64_t length);
/// The longest length with a number, or 0.
int64_t longest_measured(const MethodResults& method);

/// A way in which the same targets were read, and what each method gave there; null: it was not asked for.
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
/// Empty, or that the machine did other things while speed was measured, and how far that shows.
std::string speed_note(const CompareResults& results);

}  // namespace alibi::report
