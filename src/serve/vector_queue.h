// Requests for vectors and scores. They take turns, and short texts overtake long ones.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "alibi/embed.h"
#include "serve/http.h"

namespace alibi::serve {

/// The texts of a request, shortest first, are computed in groups. After each group the next request has its turn.
/// Texts of different orders of length are computed on different threads, so that a text which takes hours delays only
/// texts of its kind. A request whose answer nobody waits for ends within a second, also in the middle of a text.
class VectorQueue {
 public:
  struct Job {
    std::vector<EncoderInput> inputs;  ///< at least one
    /// Computes some of the inputs. inputs[i] is the one at index[i] of the request.
    std::function<void(std::span<const EncoderInput> inputs, std::span<const size_t> index)> compute;
    std::function<void()> finish;  ///< answers the request after the last group
    std::shared_ptr<Responder> responder;
  };

  /// `max_texts` are computed together, and `max_waiting` requests wait for their first group.
  VectorQueue(int64_t max_texts, int64_t max_waiting);
  /// Cancels all requests.
  ~VectorQueue();

  /// Throws ApiError with status 429 if too many requests wait.
  void submit(Job job);

 private:
  struct Entry {
    Job job;  // inputs are sorted by length
    std::vector<size_t> index;
    size_t next = 0;  // input of the next group
    std::atomic<bool> cancelled = false;

    int64_t tokens(size_t input) const { return std::ssize(job.inputs[input].ids); }
  };
  struct Lane {
    std::deque<std::shared_ptr<Entry>> entries;
    std::shared_ptr<Entry> running;
    std::thread thread;
  };

  Lane& lane_of(const Entry& entry);
  void run(Lane& lane);
  /// Returns whether the request has more to compute.
  bool compute_group(Entry& entry) const;

  const int64_t max_texts_, max_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
  std::array<Lane, 3> lanes_;
};

}  // namespace alibi::serve
