#include "ranks/group.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string_view>
#include <thread>
#include <utility>

#include "core/check.h"

namespace alibi::ranks {
namespace {

int number_of(Tag tag, int part) {
  check(part >= 0 && part < kMaxParts, "[ranks] the part of a message is {}, expected 0 to {}", part, kMaxParts - 1);
  return static_cast<int>(tag) * kMaxParts + part;
}

void check_peer(const Group& group, int rank) {
  check(rank >= 0 && rank < group.size() && rank != group.rank(),
        "[ranks] a message is for or from rank {}, expected another rank of {} than {}", rank, group.size(),
        group.rank());
}

std::string packed(const NamedValues& values) {
  std::string text;
  for (const auto& [name, value] : values) text += name + '\0' + value + '\0';
  return text;
}

NamedValues unpacked(std::string_view text) {
  NamedValues values;
  const auto take = [&] {
    const std::string word(text.substr(0, text.find('\0')));
    text.remove_prefix(word.size() + 1);
    return word;
  };
  while (!text.empty()) {
    std::string name = take();
    values.emplace_back(std::move(name), take());
  }
  return values;
}

/// "learning_rate is 0.002, on rank 0 it is 0.001; ...", or "" if the values are the same.
std::string differences(const NamedValues& here, const NamedValues& first) {
  std::map<std::string, std::pair<std::string, std::string>> all;
  for (const auto& [name, value] : here) all[name].first = value;
  for (const auto& [name, value] : first) all[name].second = value;
  const auto shown = [](const std::string& value) { return value.empty() ? std::string("not set") : value; };
  std::string text;
  for (const auto& [name, both] : all) {
    if (both.first == both.second) continue;
    text += fmt::format("{}{} is {}, on rank 0 it is {}", text.empty() ? "" : "; ", name, shown(both.first),
                        shown(both.second));
  }
  return text;
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

void check_same(Group& group, const NamedValues& values) {
  std::string first = packed(values);
  std::vector<int64_t> size{std::ssize(first)};
  broadcast(group, Tag::control, bytes_of(size));
  first.resize(static_cast<size_t>(size.front()));
  broadcast(group, Tag::control, std::as_writable_bytes(std::span(first)));
  // All ranks receive the differences of all, so that each of them ends with the same message.
  std::vector<std::string> found(static_cast<size_t>(group.size()));
  std::string& own = found[static_cast<size_t>(group.rank())];
  own = differences(values, unpacked(first));
  const std::vector<double> sizes = all_gather(group, static_cast<double>(own.size()));
  std::vector<std::span<std::byte>> parts;
  for (size_t rank = 0; rank < found.size(); ++rank) {
    found[rank].resize(static_cast<size_t>(sizes[rank]));
    parts.push_back(std::as_writable_bytes(std::span(found[rank])));
  }
  all_gather(group, Tag::control, parts);
  const auto differs = std::find_if(found.begin(), found.end(), [](const std::string& one) { return !one.empty(); });
  if (differs == found.end()) return;
  const auto others = std::count_if(differs + 1, found.end(), [](const std::string& one) { return !one.empty(); });
  fail_usage("[ranks] {}{} differs from rank 0: {}. Give all ranks the same options and the same files",
             group.name_of(static_cast<int>(differs - found.begin())),
             others > 0 ? fmt::format(" (and {} more)", others) : "", *differs);
}

void broadcast(Group& group, Tag tag, std::span<std::byte> data) {
  if (data.empty()) return;
  Transfers transfers;
  if (group.rank() != 0) transfers.push_back(group.receive(0, tag, data));
  for (int to = 1; group.rank() == 0 && to < group.size(); ++to) transfers.push_back(group.send(to, tag, data));
  wait(transfers);
}

}  // namespace alibi::ranks
