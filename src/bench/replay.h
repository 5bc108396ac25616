// What a recorded piece of work would take on more threads than the machine has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace alibi::bench {

struct RecordedSection {
  std::string name;
  double serial_seconds = 0;    ///< what the calling thread did alone before it
  std::vector<double> seconds;  ///< of each task
};

/// Parallel sections in order, and what came after the last one.
struct Recording {
  std::vector<RecordedSection> sections;
  double serial_seconds = 0;

  /// On one thread.
  double work() const;
};

/// Takes from each task and each serial part the shorter time of the two: what else ran on the machine made it longer.
/// A section that was cut otherwise (by the keys that attention skipped) is taken whole. Throws Error if the sections
/// differ.
void keep_shorter(Recording& recording, const Recording& other);

/// What it costs to hand work to threads, as the pool of core/parallel.cc does it.
struct ReplayCosts {
  double per_thread = 0.1e-6;  ///< of a section, for each thread: they count themselves in and out one after another
  double per_task = 0.1e-6;    ///< tasks are handed out one after another
  double patience = 200e-6;    ///< a thread without work looks for some so long, then it sleeps
  double wake = 50e-6;         ///< from there it takes so long until it works
};

/// All sections of one name, or all serial parts before them ("before NAME").
struct ReplayedPart {
  std::string name;
  int64_t sections = 0;
  int64_t least_tasks = 0, most_tasks = 0;  ///< 0: serial
  double work = 0;                          ///< on one thread
  double seconds = 0;                       ///< replayed
};

struct Replay {
  int threads = 0;
  double work = 0;
  double seconds = 0;
  std::vector<ReplayedPart> parts;  ///< what loses most first

  double ideal() const { return work / threads; }
  double share_of_ideal() const { return ideal() / seconds; }
  double lost(const ReplayedPart& part) const { return part.seconds - part.work / threads; }
};

/// Hands the tasks of each section in rising order to the first thread that is free. How the threads slow each other
/// down (memory, caches, clock rate) is not modelled.
Replay replay(const Recording& recording, int threads, const ReplayCosts& costs = {});

}  // namespace alibi::bench
