// The turns of requests for vectors, with computations that the test holds.
#include "serve/vector_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <utility>

#include "alibi/error.h"
#include "core/parallel.h"

namespace alibi::serve {
namespace {

using std::chrono_literals::operator""s;

class Request : public Responder {
 public:
  void reply(Reply given) override {
    const std::lock_guard lock(mutex_);
    if (std::exchange(has_reply_, true))
      ++extra_;
    else
      reply_.set_value(std::move(given));
  }
  void begin_events() override {}
  void event(std::string_view) override {}
  void end_events(std::string_view) override {}
  void fail(const std::exception_ptr& why) noexcept override { reply(api_error_for(why).reply()); }
  void on_cancel(std::function<void()> cancel) override { cancel_ = std::move(cancel); }
  void note(const std::string&, OrderedJson) override {}

  void leave() { cancel_(); }
  /// The status of the answer, or 0 if there is none within ten seconds.
  int status() { return ready_.wait_for(10s) == std::future_status::ready ? ready_.get().status : 0; }
  bool is_answered() { return ready_.wait_for(0s) == std::future_status::ready; }
  int extra() const { return extra_; }

 private:
  std::mutex mutex_;
  bool has_reply_ = false;
  int extra_ = 0;
  std::promise<Reply> reply_;
  std::shared_future<Reply> ready_ = reply_.get_future().share();
  std::function<void()> cancel_;
};

/// A request of texts with these numbers of tokens.
VectorQueue::Job job_of(const std::vector<size_t>& lengths, const std::shared_ptr<Request>& request,
                        decltype(VectorQueue::Job::compute) compute) {
  std::vector<EncoderInput> inputs;
  for (const size_t length : lengths) inputs.push_back({.ids = std::vector<int32_t>(length)});
  return {std::move(inputs), std::move(compute), [request] { request->reply({}); }, request};
}

int status_of(const std::function<void()>& submit) {
  try {
    submit();
  } catch (const ApiError& error) {
    return error.status;
  }
  return 0;
}

TEST(VectorQueue, ComputesGroupsOfTheShortestTextsFirst) {
  VectorQueue queue(3, 1);
  const auto request = std::make_shared<Request>();
  std::vector<std::vector<size_t>> groups;
  queue.submit(job_of({5, 30000, 1, 4000, 2, 3, 4}, request, [&](auto inputs, auto index) {
    groups.emplace_back(index.begin(), index.end());
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(inputs[i].ids.size(), (std::vector<size_t>{5, 30000, 1, 4000, 2, 3, 4})[index[i]]);
    }
  }));
  EXPECT_EQ(request->status(), 200);
  EXPECT_EQ(groups, (std::vector<std::vector<size_t>>{{2, 4, 5}, {6, 0, 3}, {1}}));
}

TEST(VectorQueue, ShortTextsOvertakeLongOnes) {
  VectorQueue queue(4, 8);
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  const auto hold = [released](auto, auto) { released.wait(); };
  const auto pass = [](auto, auto) {};
  const auto longest = std::make_shared<Request>(), longer = std::make_shared<Request>(),
             brief = std::make_shared<Request>(), mixed = std::make_shared<Request>();
  queue.submit(job_of({1000000}, longest, hold));
  queue.submit(job_of({20000}, longer, pass));
  queue.submit(job_of({10}, brief, pass));
  EXPECT_EQ(brief->status(), 200);
  EXPECT_EQ(longer->status(), 200);
  // The long text of a request waits, and other requests are served meanwhile.
  queue.submit(job_of({500000, 10}, mixed, pass));
  const auto last = std::make_shared<Request>();
  queue.submit(job_of({10}, last, pass));
  EXPECT_EQ(last->status(), 200);
  EXPECT_FALSE(longest->is_answered());
  EXPECT_FALSE(mixed->is_answered());
  release.set_value();
  EXPECT_EQ(longest->status(), 200);
  EXPECT_EQ(mixed->status(), 200);
}

TEST(VectorQueue, RequestsWithManyTextsTakeTurns) {
  VectorQueue queue(1, 8);
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  const auto many = std::make_shared<Request>(), one = std::make_shared<Request>();
  std::atomic<int> groups = 0;
  queue.submit(job_of(std::vector<size_t>(100, 10), many, [&groups, released](auto, auto) {
    if (++groups == 1) released.wait();
  }));
  int groups_before = 0;
  queue.submit(job_of({10}, one, [&](auto, auto) { groups_before = groups; }));
  release.set_value();
  EXPECT_EQ(one->status(), 200);
  EXPECT_EQ(many->status(), 200);
  EXPECT_EQ(groups_before, 1);
}

TEST(VectorQueue, ACancelledRequestEndsInTheMiddleOfAText) {
  VectorQueue queue(4, 0);
  const auto endless = [](auto, auto) {
    while (true) core::parallel_for(4, [](int64_t) {});
  };
  const auto running = std::make_shared<Request>();
  queue.submit(job_of({10}, running, endless));
  EXPECT_EQ(status_of([&] { queue.submit(job_of({10}, std::make_shared<Request>(), endless)); }), 429);
  running->leave();
  EXPECT_EQ(running->status(), 503);
  EXPECT_EQ(running->extra(), 0);
}

TEST(VectorQueue, LimitsWaitingRequestsAndForgetsCancelledOnes) {
  VectorQueue queue(4, 2);
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::promise<void> begun;
  const auto first = std::make_shared<Request>(), second = std::make_shared<Request>(),
             third = std::make_shared<Request>(), fourth = std::make_shared<Request>();
  const auto pass = [](auto, auto) {};
  queue.submit(job_of({10}, first, [&](auto, auto) {
    begun.set_value();
    released.wait();
  }));
  begun.get_future().wait();
  queue.submit(job_of({10}, second, pass));
  queue.submit(job_of({10}, third, pass));
  EXPECT_EQ(status_of([&] { queue.submit(job_of({10}, fourth, pass)); }), 429);
  second->leave();
  EXPECT_EQ(status_of([&] { queue.submit(job_of({10}, fourth, pass)); }), 0);
  EXPECT_EQ(second->status(), 503);
  release.set_value();
  for (const auto& request : {first, third, fourth}) EXPECT_EQ(request->status(), 200);
}

TEST(VectorQueue, TheLargestLimitIsNoLimit) {
  VectorQueue queue(INT64_MAX, INT64_MAX);
  const auto request = std::make_shared<Request>();
  queue.submit(job_of({10, 20}, request, [](auto, auto) {}));
  EXPECT_EQ(request->status(), 200);
}

TEST(VectorQueue, TheEndOfTheQueueCancelsAllRequests) {
  const auto running = std::make_shared<Request>(), waiting = std::make_shared<Request>();
  {
    VectorQueue queue(4, 2);
    std::promise<void> begun;
    queue.submit(job_of({10}, running, [&](auto, auto) {
      begun.set_value();
      while (true) core::parallel_for(4, [](int64_t) {});
    }));
    begun.get_future().wait();
    queue.submit(job_of({10}, waiting, [](auto, auto) {}));
  }
  EXPECT_EQ(running->status(), 503);
  EXPECT_EQ(waiting->status(), 503);
}

TEST(VectorQueue, WhatAComputationThrowsIsTheAnswer) {
  VectorQueue queue(4, 2);
  const auto failing = std::make_shared<Request>(), next = std::make_shared<Request>();
  queue.submit(job_of({10, 10}, failing, [](auto, auto) { throw UsageError("wrong"); }));
  EXPECT_EQ(failing->status(), 400);
  queue.submit(job_of({10}, next, [](auto, auto) {}));
  EXPECT_EQ(next->status(), 200);
}

}  // namespace
}  // namespace alibi::serve
