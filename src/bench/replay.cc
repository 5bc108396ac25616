#include "bench/replay.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <queue>

#include "core/check.h"

namespace alibi::bench {
namespace {

double sum(const std::vector<double>& seconds) { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

/// Threads by the time from which each is free.
class Crew {
 public:
  Crew(int threads, const ReplayCosts& costs) : free_since_(static_cast<size_t>(threads)), costs_(costs) {}

  /// The calling thread, the first of them, works alone.
  void work_alone(double seconds) {
    now_ += seconds;
    free_since_.front() = now_;
  }

  /// Returns the seconds of the section.
  double run(const std::vector<double>& tasks) {
    const double begin = now_;
    if (tasks.size() <= 1 || free_since_.size() == 1) {
      work_alone(sum(tasks));
      return now_ - begin;
    }
    const double ready = begin + costs_.per_thread * static_cast<double>(free_since_.size());
    using Free = std::pair<double, size_t>;  // from when, which thread
    std::priority_queue<Free, std::vector<Free>, std::greater<>> queue;
    for (size_t thread = 0; thread < free_since_.size(); ++thread) {
      const bool sleeps = thread > 0 && begin - free_since_[thread] > costs_.patience;
      queue.emplace(ready + (sleeps ? costs_.wake : 0), thread);
    }
    double handed_out = ready;
    for (const double seconds : tasks) {
      const auto [from, thread] = queue.top();
      queue.pop();
      handed_out = std::max(handed_out, from) + costs_.per_task;
      free_since_[thread] = handed_out + seconds;
      now_ = std::max(now_, free_since_[thread]);
      queue.emplace(free_since_[thread], thread);
    }
    for (; !queue.empty(); queue.pop()) {  // the section waits for those, too, that came too late for a task
      const auto [from, thread] = queue.top();
      free_since_[thread] = from;
      now_ = std::max(now_, from);
    }
    return now_ - begin;
  }

 private:
  std::vector<double> free_since_;
  double now_ = 0;
  ReplayCosts costs_;
};

}  // namespace

double Recording::work() const {
  double total = serial_seconds;
  for (const RecordedSection& section : sections) total += section.serial_seconds + sum(section.seconds);
  return total;
}

void keep_shorter(Recording& recording, const Recording& other) {
  check(recording.sections.size() == other.sections.size(), "[replay] {} and {} sections, expected the same work twice",
        recording.sections.size(), other.sections.size());
  const auto shorter = [](double& mine, double theirs) { mine = std::min(mine, theirs); };
  for (size_t i = 0; i < recording.sections.size(); ++i) {
    RecordedSection& mine = recording.sections[i];
    const RecordedSection& theirs = other.sections[i];
    check(mine.name == theirs.name, "[replay] section {} is {} and {}, expected the same work twice", i, mine.name,
          theirs.name);
    shorter(mine.serial_seconds, theirs.serial_seconds);
    if (mine.seconds.size() != theirs.seconds.size()) {
      if (sum(theirs.seconds) < sum(mine.seconds)) mine.seconds = theirs.seconds;
      continue;
    }
    for (size_t task = 0; task < mine.seconds.size(); ++task) shorter(mine.seconds[task], theirs.seconds[task]);
  }
  shorter(recording.serial_seconds, other.serial_seconds);
}

Replay replay(const Recording& recording, int threads, const ReplayCosts& costs) {
  check(threads >= 1, "[replay] {} threads, expected at least 1", threads);
  Replay result{.threads = threads, .work = recording.work(), .seconds = 0, .parts = {}};
  std::map<std::string, ReplayedPart> parts;
  const auto add = [&](const std::string& name, int64_t tasks, double work, double seconds) {
    ReplayedPart& part = parts[name];
    part.name = name;
    part.least_tasks = part.sections == 0 ? tasks : std::min(part.least_tasks, tasks);
    part.most_tasks = std::max(part.most_tasks, tasks);
    ++part.sections;
    part.work += work;
    part.seconds += seconds;
    result.seconds += seconds;
  };
  Crew crew(threads, costs);
  const auto add_serial = [&](const std::string& name, double seconds) {
    crew.work_alone(seconds);
    add(name, 0, seconds, seconds);
  };
  for (const RecordedSection& section : recording.sections) {
    add_serial("before " + section.name, section.serial_seconds);
    const double work = sum(section.seconds);
    add(section.name, static_cast<int64_t>(section.seconds.size()), work, crew.run(section.seconds));
  }
  add_serial("at the end", recording.serial_seconds);
  for (auto& [name, part] : parts) result.parts.push_back(std::move(part));
  std::stable_sort(result.parts.begin(), result.parts.end(),
                   [&](const ReplayedPart& a, const ReplayedPart& b) { return result.lost(a) > result.lost(b); });
  return result;
}

}  // namespace alibi::bench
