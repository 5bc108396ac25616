#include "nn/end_of_process.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace alibi::nn {
namespace {

std::atomic<bool> ended{false};
std::atomic<int> users{0};
thread_local int own_uses = 0;  // of the calling thread: exit() in the midst of one must not wait for itself

void end() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds patience(10);  // far longer than a product
  ended.store(true);
  const Clock::time_point last = Clock::now() + patience;
  while (users.load() > own_uses && Clock::now() < last) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

/// In a child made by fork() the parent's other threads are not there, and nothing has ended.
void follow_forks() {
  ::pthread_atfork(nullptr, nullptr, [] {
    ended.store(false);
    users.store(own_uses);
  });
}

}  // namespace

UseOfOneDnn::UseOfOneDnn() {
  static std::once_flag first_use;
  std::call_once(first_use, follow_forks);
  users.fetch_add(1);  // before the look, as end() says that it has ended before it looks for users
  is_there_ = !ended.load();
  if (is_there_) {
    ++own_uses;
  } else {
    users.fetch_sub(1);
  }
}

UseOfOneDnn::~UseOfOneDnn() {
  if (!is_there_) return;
  --own_uses;
  users.fetch_sub(1);
}

void wait_at_the_end_for_users() { std::atexit(end); }

}  // namespace alibi::nn
