#include "serve/network/log_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

namespace alibi::serve::network {
namespace {

constexpr size_t max_waiting = size_t{1} << 20;
constexpr std::chrono::seconds time_for_the_rest{1};

}  // namespace

struct LogWriter::State {
  const int descriptor;
  std::mutex mutex;
  std::condition_variable changed;
  std::string waiting = {};
  int64_t dropped = 0;
  bool stopped = false, ended = false;

  void run() {
    std::string text;
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stopped || !waiting.empty(); });
      if (waiting.empty()) break;
      text.clear();
      std::swap(text, waiting);
      const int64_t count = std::exchange(dropped, 0);
      lock.unlock();
      write_all(text);
      if (count > 0) {
        char line[100];
        const auto end =
            fmt::format_to_n(line, sizeof(line), "{{\"event\":\"log lines were dropped\",\"lines\":{}}}\n", count);
        write_all({line, end.size});
      }
      lock.lock();
    }
    ended = true;
    lock.unlock();
    changed.notify_all();
  }

  void write_all(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t count = ::write(descriptor, text.data(), text.size());
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return;  // a log that cannot be written is no reason to end
      text.remove_prefix(static_cast<size_t>(count));
    }
  }
};

LogWriter::LogWriter(int descriptor)
    : state_(new State{.descriptor = descriptor, .mutex = {}, .changed = {}}),
      thread_([state = state_] { state->run(); }) {}

LogWriter::~LogWriter() {
  std::unique_lock lock(state_->mutex);
  state_->stopped = true;
  state_->changed.notify_all();
  const bool has_ended = state_->changed.wait_for(lock, time_for_the_rest, [this] { return state_->ended; });
  lock.unlock();
  has_ended ? thread_.join() : thread_.detach();
}

void LogWriter::add(std::string_view line) noexcept {
  {
    const std::lock_guard lock(state_->mutex);
    const size_t before = state_->waiting.size();
    try {
      if (before + line.size() >= max_waiting) {
        ++state_->dropped;
      } else {
        state_->waiting.append(line).append("\n");
      }
    } catch (...) {  // there is no memory
      state_->waiting.resize(before);
      ++state_->dropped;
    }
  }
  state_->changed.notify_all();
}

}  // namespace alibi::serve::network
