#include "stop_signals.h"

#include <unistd.h>

#include <csignal>
#include <initializer_list>

namespace alibi::cli {
namespace {

volatile std::sig_atomic_t noted = 0;

void set_handlers(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

void note(int signal) {
  noted = signal;
  set_handlers(SIG_DFL);
  constexpr char message[] = "\nalibi: finishing the update, then saving; once more ends at once\n";
  [[maybe_unused]] const ssize_t put = ::write(STDERR_FILENO, message, sizeof message - 1);
}

}  // namespace

StopSignals::StopSignals() {
  noted = 0;
  set_handlers(note);
}

StopSignals::~StopSignals() { set_handlers(SIG_DFL); }

int StopSignals::received() { return noted; }

}  // namespace alibi::cli
