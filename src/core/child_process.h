// Runs code of other libraries in a separate process, because it may abort when memory runs out.
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
  /// Returns false if the other process has ended.
  bool send(std::string_view message) const;
  /// Returns nothing if the other process has ended.
  std::optional<std::string> receive() const;

 private:
  Descriptor socket_;
};

/// Runs `body` in a child process made by fork(). The child has one thread, and ends when this object or the parent
/// ends. It ignores the signals that a terminal sends to both processes; the parent handles them.
class ChildProcess {
 public:
  /// Error messages begin with `operation`. Throws Error if the child cannot be created.
  ChildProcess(const char* operation, const std::function<void(const Channel&)>& body);
  ~ChildProcess();

  const Channel& channel() const { return *channel_; }
  /// Call this if the child ended too early. Waits for its end and throws Error with the reason, followed by `when`,
  /// e.g. "while it worked".
  [[noreturn]] void fail_ended(const char* when);

 private:
  const char* operation_;
  std::optional<Channel> channel_;
  pid_t child_ = -1;
};

}  // namespace alibi::core
