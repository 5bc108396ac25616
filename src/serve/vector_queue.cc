#include "serve/vector_queue.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "alibi/interrupt.h"

namespace alibi::serve {
namespace {

/// Maximum number of tokens of a group, unless it is one text.
constexpr int64_t group_tokens = 4096;
/// Texts up to these numbers of tokens are computed on the first thread and on the second one.
constexpr int64_t short_text = 4 * group_tokens, long_text = 16 * short_text;

ApiError cancelled() { return {503, "the request was cancelled", "", "cancelled"}; }

}  // namespace

VectorQueue::VectorQueue(int64_t max_texts, int64_t max_waiting) : max_texts_(max_texts), max_waiting_(max_waiting) {
  for (Lane& lane : lanes_) lane.thread = std::thread([this, &lane] { run(lane); });
}

VectorQueue::~VectorQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    for (const Lane& lane : lanes_) {
      if (lane.running) lane.running->cancelled = true;
    }
  }
  changed_.notify_all();
  for (Lane& lane : lanes_) lane.thread.join();
  for (const Lane& lane : lanes_) {
    for (const auto& entry : lane.entries) answer(*entry->job.responder, [] { throw cancelled(); });
  }
}

VectorQueue::Lane& VectorQueue::lane_of(const Entry& entry) {
  const int64_t tokens = entry.tokens(entry.next);
  return lanes_[tokens <= short_text ? 0 : tokens <= long_text ? 1 : 2];
}

void VectorQueue::submit(Job job) {
  const auto entry = std::make_shared<Entry>();
  entry->index.resize(job.inputs.size());
  std::iota(entry->index.begin(), entry->index.end(), size_t{0});
  std::stable_sort(entry->index.begin(), entry->index.end(),
                   [&](size_t a, size_t b) { return job.inputs[a].ids.size() < job.inputs[b].ids.size(); });
  std::vector<EncoderInput> sorted;
  sorted.reserve(job.inputs.size());
  for (const size_t i : entry->index) sorted.push_back(std::move(job.inputs[i]));
  entry->job = std::move(job);
  entry->job.inputs = std::move(sorted);
  entry->job.responder->on_cancel([weak = std::weak_ptr(entry)] {
    if (const auto found = weak.lock()) found->cancelled = true;
  });
  std::vector<std::shared_ptr<Entry>> dropped;  // their memory is freed without the lock
  {
    const std::lock_guard lock(mutex_);
    int64_t waiting = 0;
    for (Lane& lane : lanes_) {
      const auto gone = std::stable_partition(lane.entries.begin(), lane.entries.end(),
                                              [](const auto& one) { return !one->cancelled; });
      dropped.insert(dropped.end(), std::make_move_iterator(gone), std::make_move_iterator(lane.entries.end()));
      lane.entries.erase(gone, lane.entries.end());
      waiting +=
          std::count_if(lane.entries.begin(), lane.entries.end(), [](const auto& one) { return one->next == 0; });
    }
    Lane& lane = lane_of(*entry);
    const bool is_free = lane.entries.empty() && !lane.running;
    if (waiting - (is_free ? 1 : 0) >= max_waiting_) {
      throw ApiError{429, "too many requests for vectors or scores are waiting; try again later", "", "queue_full"};
    }
    lane.entries.push_back(entry);
  }
  changed_.notify_all();
  for (const auto& one : dropped) answer(*one->job.responder, [] { throw cancelled(); });
}

void VectorQueue::run(Lane& lane) {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopped_ || !lane.entries.empty(); });
    if (stopped_) return;
    std::shared_ptr<Entry> entry = lane.running = std::move(lane.entries.front());
    lane.entries.pop_front();
    lock.unlock();
    const bool goes_on = compute_group(*entry);
    lock.lock();
    lane.running = nullptr;
    if (goes_on) {
      try {
        lane_of(*entry).entries.push_back(entry);
      } catch (...) {  // no memory
        entry->job.responder->fail(std::current_exception());
      }
      changed_.notify_all();
    }
    lock.unlock();
    entry = nullptr;  // what it holds may wait for this thread's lock
    lock.lock();
  }
}

bool VectorQueue::compute_group(Entry& entry) const {
  bool goes_on = false;
  answer(*entry.job.responder, [&] {
    if (entry.cancelled) throw cancelled();
    const size_t first = entry.next, all = entry.job.inputs.size();
    size_t count = 0;
    int64_t tokens = 0;
    do {
      tokens += entry.tokens(first + count++);
    } while (first + count < all && std::cmp_less(count, max_texts_) &&
             tokens + entry.tokens(first + count) <= group_tokens);
    const InterruptScope scope([&entry] {
      if (entry.cancelled) throw cancelled();
    });
    entry.job.compute(std::span(entry.job.inputs).subspan(first, count), std::span(entry.index).subspan(first, count));
    entry.next = first + count;
    goes_on = entry.next < all;
    if (!goes_on) entry.job.finish();
  });
  return goes_on;
}

}  // namespace alibi::serve
