// Code that ends its process ends only a child, whose status is reported.
#include "core/child_process.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "alibi/error.h"
#include "alibi/interrupt.h"
#include "testing.h"

namespace alibi::core {
namespace {

TEST(ChildProcess, SendsAndAnswers) {
  const ChildProcess child("test", [](const Channel& parent) {
    while (const std::optional<std::string> message = parent.receive()) parent.send(*message + *message);
  });
  for (const size_t size : {0, 1, 1 << 20}) {
    EXPECT_TRUE(child.channel().send(std::string(size, 'x')));
    EXPECT_EQ(child.channel().receive(), std::string(2 * size, 'x'));
  }
}

TEST(ChildProcess, WaitingForItCanBeInterrupted) {
  bool is_ready = false;  // a busy machine may start the child late, when a check is already due
  const InterruptScope scope([&] {
    if (is_ready) throw Error("stopped");
  });
  const ChildProcess child("test", [](const Channel& parent) {
    parent.send("ready");
    parent.receive();  // never comes; the scope is of the parent alone
    parent.send("woken");
  });
  EXPECT_EQ(child.channel().receive(), "ready");
  is_ready = true;
  EXPECT_EQ(test::message_of([&] { child.channel().receive(); }), "stopped");
}

TEST(ChildProcess, SaysHowItEnded) {
  struct Case {
    std::function<void()> end;
    const char* expected;
  };
  const auto throw_no_memory = [] { throw std::bad_alloc(); };
  for (const Case& each : {Case{throw_no_memory, "[test] out of memory while it worked"},
                           Case{[&] { std::thread(throw_no_memory).join(); }, "[test] out of memory while it worked"},
                           Case{[] { std::abort(); }, "[test] out of memory while it worked"},
                           Case{[] { ::raise(SIGKILL); }, "[test] out of memory while it worked"},
                           Case{[] { throw std::system_error(EAGAIN, std::generic_category()); },
                                "[test] the system refused to create a thread while it worked"},
                           Case{[] { throw std::runtime_error("else"); }, "ended with exit code 5 while it worked"},
                           Case{[] { ::raise(SIGUSR1); }, "ended with signal 10 while it worked"}}) {
    ChildProcess child("test", [&](const Channel&) { each.end(); });
    EXPECT_EQ(child.channel().receive(), std::nullopt);
    test::expect_error([&] { child.fail_ended("while it worked"); }, each.expected);
  }
}

}  // namespace
}  // namespace alibi::core
