// A comparison over the ranks of a group.
#pragma once

#include <functional>

#include "alibi/compare.h"
#include "ranks/group.h"

namespace alibi::comparison {

/// compare(). All ranks of the group call it with the same options. Each does some of the runs, in the same folder;
/// rank 0 measures speed, writes the report and returns all results. A rank that should stop stops all. `group` may be
/// null.
CompareResults compare_over(ranks::Group* group, const CompareOptions& options,
                            const std::function<void(const CompareStatus&)>& on_status);

}  // namespace alibi::comparison
