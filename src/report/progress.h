// A progress line on the terminal that is rewritten, or elsewhere a new line now and then. This is the only part of the
// library that writes to a stream, and only to the stream that the command gives it.
#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

#include "core/format.h"

namespace alibi::report {

struct ProgressOptions {
  bool even_without_terminal = false;  ///< for tests; a file or pipe otherwise gets nothing
  double interval = 0.1;               ///< seconds between two rewrites at least
  int width = 0;                       ///< columns; 0: asks the terminal
  std::function<double()> clock;       ///< seconds; empty: a steady clock
  /// Receives a line now and then if there is no terminal; may be empty.
  std::function<void(std::string_view)> line = {};
  double line_interval = 10;  ///< seconds between two of these, and before the first
};

/// "train alibi   31%  loss 2.345  25.3k tokens/s  1m 20s left"
class Progress {
 public:
  explicit Progress(std::FILE* stream, ProgressOptions options = {});
  /// Clears the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Whether there is a line on a terminal.
  bool active() const { return active_; }
  /// Starts a piece of work; the time left is counted from here.
  void begin(std::string label);
  /// `fraction` in [0, 1] of the work is done; `fields` is shown behind it. Rewrites the line if the interval has
  /// passed. `seconds_left` replaces the estimate for this piece of work; 0 means not known yet.
  void update(double fraction, std::string_view fields = {}, double seconds_left = -1);
  /// Removes the line, so that something else can be printed.
  void clear();

 private:
  void write(std::string_view line);

  std::FILE* stream_;
  ProgressOptions options_;
  bool active_ = false;
  bool shown_ = false;
  std::string label_;
  double begun_ = 0;
  double written_ = 0;  ///< when; also of what goes to options_.line
};

}  // namespace alibi::report
