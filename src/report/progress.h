// Progress output: a line that is rewritten on a terminal, or a new line every few seconds elsewhere. This is the only
// part of the library that writes to a stream, and it writes only to the stream that the command passes.
#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

#include "core/format.h"

namespace alibi::report {

struct ProgressOptions {
  bool even_without_terminal = false;  ///< for tests; otherwise files and pipes get no progress line
  double interval = 0.1;               ///< minimum number of seconds between two rewrites
  int width = 0;                       ///< columns; 0 asks the terminal
  std::function<double()> clock;       ///< current time in seconds; if empty, a steady clock is used
  /// Receives a progress line every `line_interval` seconds if there is no terminal. May be empty.
  std::function<void(std::string_view)> line = {};
  double line_interval = 10;  ///< seconds before the first such line and between two of them
};

/// "train alibi   31%  loss 2.345  25.3k tokens/s  1m 20s left"
class Progress {
 public:
  explicit Progress(std::FILE* stream, ProgressOptions options = {});
  /// Clears the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Whether the progress line is on a terminal.
  bool active() const { return active_; }
  /// Starts a piece of work. The remaining time is estimated from here on.
  void begin(std::string label);
  /// Reports that `fraction` (0 to 1) of the work is done; `fields` is shown after it. Rewrites the line if the
  /// interval has passed. `seconds_left` replaces the estimate of the remaining time; 0 means that it is not known yet.
  void update(double fraction, std::string_view fields = {}, double seconds_left = -1);
  /// Clears the line so that other text can be printed.
  void clear();

 private:
  void write(std::string_view line);

  std::FILE* stream_;
  ProgressOptions options_;
  bool active_ = false;
  bool shown_ = false;
  std::string label_;
  double begun_ = 0;
  double written_ = 0;  ///< time of the last output, including calls of options_.line
};

}  // namespace alibi::report
