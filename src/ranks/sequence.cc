#include "ranks/sequence.h"

namespace alibi::ranks {

SequenceRanks sequence_ranks(Group& group) {
  const auto exchange = [&group](std::span<const SequenceRanks::Send> sends,
                                 std::span<const SequenceRanks::Receive> receives) {
    Transfers transfers;
    for (const auto& [from, data] : receives) transfers.push_back(group.receive(from, Tag::sequence, data));
    for (const auto& [to, data] : sends) transfers.push_back(group.send(to, Tag::sequence, data));
    wait(transfers);
  };
  return {.rank = group.rank(), .count = group.size(), .exchange = exchange};
}

}  // namespace alibi::ranks
