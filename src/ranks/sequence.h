// The exchange of ranks that divide a sequence (alibi/sequence_parallel.h) by messages of a group.
#pragma once

#include "alibi/sequence_parallel.h"
#include "ranks/group.h"

namespace alibi::ranks {

/// All ranks of the group divide the sequence. The group must outlive the result.
SequenceRanks sequence_ranks(Group& group);

}  // namespace alibi::ranks
