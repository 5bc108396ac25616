// Signals while code runs that none may interrupt.
#pragma once

#include <pthread.h>

#include <csignal>
#include <initializer_list>

namespace alibi::core {

/// While it lives, signals that others send to this thread wait. Those that tell of a fault in its own code do not.
class SignalsWait {
 public:
  SignalsWait() {
    sigset_t waiting;
    sigfillset(&waiting);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&waiting, fault);
    ::pthread_sigmask(SIG_SETMASK, &waiting, &before_);
  }
  ~SignalsWait() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

 private:
  sigset_t before_;
};

}  // namespace alibi::core
