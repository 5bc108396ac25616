#include "ranks/group.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/check.h"

namespace alibi::ranks {
namespace {

int number_of(Tag tag, int part) {
  check(part >= 0 && part < kMostParts, "[ranks] the part of a message is {}, expected 0 to {}", part, kMostParts - 1);
  return static_cast<int>(tag) * kMostParts + part;
}

void check_peer(const Group& group, int rank) {
  check(rank >= 0 && rank < group.size() && rank != group.rank(),
        "[ranks] a message is for or from rank {}, expected another rank of {} than {}", rank, group.size(),
        group.rank());
}

}  // namespace

void Group::set_advice(const std::string& advice) {
  const std::lock_guard lock(mutex_);
  advice_ = advice;
}

std::string Group::advice() const {
  const std::lock_guard lock(mutex_);
  return advice_;
}

std::unique_ptr<Transfer> Group::send(int to, Tag tag, std::span<const std::byte> data, int part) {
  check_peer(*this, to);
  bytes_sent_ += static_cast<int64_t>(data.size());
  return start_send(to, number_of(tag, part), data);
}

std::unique_ptr<Transfer> Group::receive(int from, Tag tag, std::span<std::byte> data, int part) {
  check_peer(*this, from);
  return start_receive(from, number_of(tag, part), data);
}

void wait(Transfers& transfers) {
  constexpr int patient = 32;  // attempts before the thread sleeps
  constexpr std::chrono::microseconds shortest(20), longest(500);
  std::chrono::microseconds pause = shortest;
  int attempts = 0;
  while (!transfers.empty()) {
    // Every transfer is polled, because this is when MPI moves data.
    const size_t before = transfers.size();
    std::erase_if(transfers, [](const std::unique_ptr<Transfer>& transfer) { return transfer->is_done(); });
    if (transfers.size() < before) {
      attempts = 0;
      pause = shortest;
    } else if (++attempts < patient) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(pause);
      pause = std::min(longest, pause + pause / 4);
    }
  }
}

void all_gather(Group& group, Tag tag, std::span<const std::span<std::byte>> parts) {
  const int here = group.rank();
  check(std::ssize(parts) == group.size(), "[ranks] all-gather has {} parts, expected one for each of {} ranks",
        parts.size(), group.size());
  Transfers transfers;
  // Every rank begins with its right neighbour, so that not all send to the same rank at once.
  for (int i = 1; i < group.size(); ++i) {
    const int from = (here + group.size() - i) % group.size(), to = (here + i) % group.size();
    const std::span<std::byte> theirs = parts[static_cast<size_t>(from)], ours = parts[static_cast<size_t>(here)];
    if (!theirs.empty()) transfers.push_back(group.receive(from, tag, theirs));
    if (!ours.empty()) transfers.push_back(group.send(to, tag, ours));
  }
  wait(transfers);
}

std::vector<double> all_gather(Group& group, double value) {
  std::vector<double> values(static_cast<size_t>(group.size()));
  values[static_cast<size_t>(group.rank())] = value;
  std::vector<std::span<std::byte>> parts;
  for (double& one : values) parts.push_back(std::as_writable_bytes(std::span(&one, 1)));
  all_gather(group, Tag::control, parts);
  return values;
}

void barrier(Group& group) { all_gather(group, 0.0); }

void broadcast(Group& group, Tag tag, std::span<std::byte> data) {
  if (data.empty()) return;
  Transfers transfers;
  if (group.rank() != 0) transfers.push_back(group.receive(0, tag, data));
  for (int to = 1; group.rank() == 0 && to < group.size(); ++to) transfers.push_back(group.send(to, tag, data));
  wait(transfers);
}

}  // namespace alibi::ranks
