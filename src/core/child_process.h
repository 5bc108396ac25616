// Code of others that aborts where memory is short, in a process of its own.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/descriptor.h"

namespace alibi::core {

/// One end of a connection between two processes.
class Channel {
 public:
  explicit Channel(Descriptor socket) : socket_(std::move(socket)) {}
  /// False: the other process has ended.
  bool send(std::string_view message) const;
  /// Nothing: the other process has ended.
  std::optional<std::string> receive() const;

 private:
  Descriptor socket_;
};

/// Runs `body` in a child made by fork(), which has one thread and ends when this object or the parent does. Signals
/// that a terminal sends to both are the parent's to handle.
class ChildProcess {
 public:
  /// `operation` begins the messages of errors. Throws Error if there can be no child.
  ChildProcess(const char* operation, const std::function<void(const Channel&)>& body);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  const Channel& channel() const { return *channel_; }
  /// For a child that ended before it sent what is needed: waits for its end and throws Error that says why. `when`
  /// follows that: "while it worked".
  [[noreturn]] void fail_ended(const char* when);

 private:
  const char* operation_;
  std::optional<Channel> channel_;
  pid_t child_ = -1;
};

}  // namespace alibi::core
