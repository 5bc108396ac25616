// The exchange of ranks that divide a sequence (alibi/sequence_parallel.h) by messages of a group.
#pragma once

#include <vector>

#include "alibi/sequence_parallel.h"
#include "ranks/group.h"

namespace alibi::ranks {

/// These ranks of the group divide a sequence, in this order. They include the group's own. The group must outlive the
/// result.
SequenceRanks sequence_ranks(Group& group, std::vector<int> members);
/// All ranks of the group divide the sequence.
SequenceRanks sequence_ranks(Group& group);

}  // namespace alibi::ranks
