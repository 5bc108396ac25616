// A log that cannot stop the server.
#pragma once

#include <memory>
#include <string_view>
#include <thread>

namespace alibi::serve::network {

/// Writes lines to a file descriptor on a thread of its own. If nobody reads them, for example from a pipe that is
/// full, up to 1 MiB of lines wait. Further lines are dropped, and their number is written as a line of its own.
class LogWriter {
 public:
  explicit LogWriter(int descriptor);
  /// Waits for the lines that are left, at most one second.
  ~LogWriter();

  /// Adds a line. Never waits for the reader and never throws.
  void add(std::string_view line) noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object while a write blocks it
  std::thread thread_;
};

}  // namespace alibi::serve::network
