#include "report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace alibi::report {

namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int terminal_width(std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace

Progress::Progress(std::FILE* stream, ProgressOptions options) : stream_(stream), options_(std::move(options)) {
  active_ = stream_ != nullptr && (options_.even_without_terminal || isatty(fileno(stream_)) == 1);
  if (!options_.clock) options_.clock = steady_seconds;
  written_ = active_ ? -INFINITY : options_.clock();
}

Progress::~Progress() { clear(); }

void Progress::begin(std::string label) {
  if (!active_ && !options_.line) return;
  label_ = std::move(label);
  begun_ = options_.clock();
  if (active_) written_ = -INFINITY;
}

void Progress::update(double fraction, std::string_view fields, double seconds_left) {
  if (!active_ && !options_.line) return;
  const double now = options_.clock();
  if (active_ ? now - written_ < options_.interval && fraction < 1 : now - written_ < options_.line_interval) return;
  written_ = now;
  fraction = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
  // 100 % is shown only when the work is done.
  std::string line = fmt::format("{} {:3.0f}%", label_, fraction < 1 ? std::floor(100 * fraction) : 100.0);
  if (!fields.empty()) line += fmt::format("  {}", fields);
  const double elapsed = now - begun_;
  // The first second (cold caches, weight packing) does not predict the rest.
  if (seconds_left < 0 && fraction > 0 && fraction < 1 && elapsed >= 1) {
    seconds_left = elapsed * (1 - fraction) / fraction;
  }
  if (seconds_left > 0) line += fmt::format("  {} left", core::format_duration(seconds_left));
  if (active_) {
    write(line);
  } else {
    options_.line(line);
  }
}

void Progress::clear() {
  if (active_ && shown_) std::fputs("\r\x1b[K", stream_), std::fflush(stream_);
  shown_ = false;
}

void Progress::write(std::string_view line) {
  // A carriage return cannot rewrite a line that wraps.
  const int width = options_.width > 0 ? options_.width : terminal_width(stream_);
  const auto room = static_cast<size_t>(std::max(width - 1, 1));
  std::string text = "\r";
  text += line.substr(0, room);
  text += "\x1b[K";
  std::fwrite(text.data(), 1, text.size(), stream_);
  std::fflush(stream_);
  shown_ = true;
}

}  // namespace alibi::report
