#include "ranks/sequence.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/check.h"

namespace alibi::ranks {

SequenceRanks sequence_ranks(Group& group, std::vector<int> members) {
  const auto own = std::find(members.begin(), members.end(), group.rank());
  check(own != members.end(), "[ranks] rank {} is not among the {} that divide the sequence", group.rank(),
        members.size());
  SequenceRanks result;
  result.rank = static_cast<int>(own - members.begin());
  result.count = static_cast<int>(members.size());
  result.exchange = [&group, members = std::move(members)](std::span<const SequenceRanks::Send> sends,
                                                           std::span<const SequenceRanks::Receive> receives) {
    Transfers transfers;
    for (const auto& [from, data] : receives) {
      transfers.push_back(group.receive(members[static_cast<size_t>(from)], Tag::sequence, data));
    }
    for (const auto& [to, data] : sends) {
      transfers.push_back(group.send(members[static_cast<size_t>(to)], Tag::sequence, data));
    }
    wait(transfers);
  };
  return result;
}

SequenceRanks sequence_ranks(Group& group) {
  std::vector<int> all(static_cast<size_t>(group.size()));
  std::iota(all.begin(), all.end(), 0);
  return sequence_ranks(group, std::move(all));
}

}  // namespace alibi::ranks
