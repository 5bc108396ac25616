#include "stop_signals.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <initializer_list>
#include <string>

namespace alibi::cli {
namespace {

volatile std::sig_atomic_t noted = 0;
volatile std::sig_atomic_t handles_schedulers = 0;
std::string told_then;  // constant while the handler is installed

void set_handlers(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    if (handles_schedulers != 0) sigaction(signal, &action, nullptr);
  }
}

void note(int signal) {
  noted = signal;
  set_handlers(SIG_DFL);
  [[maybe_unused]] const ssize_t put = ::write(STDERR_FILENO, told_then.data(), told_then.size());
}

}  // namespace

StopSignals::StopSignals(std::string_view message, bool of_schedulers) {
  noted = 0;
  handles_schedulers = of_schedulers ? 1 : 0;
  told_then = message.empty() ? std::string() : fmt::format("\nalibi: {}\n", message);
  set_handlers(note);
}

StopSignals::~StopSignals() { set_handlers(SIG_DFL); }

int StopSignals::received() { return noted; }

}  // namespace alibi::cli
