// The parallel sections of a piece of work, by names that lead a developer to them.
#pragma once

#include <functional>
#include <vector>

#include "alibi/language_model.h"
#include "bench/replay.h"

namespace alibi::bench {

/// Runs the work, which the calling thread begins, and records its parallel sections with the time of each task. They
/// are named by the line that begins them, those of matrix products by the product, too.
Recording record_sections(const std::function<void()>& work, const std::vector<Parameter*>& parameters);

}  // namespace alibi::bench
