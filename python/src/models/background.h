// What works on a thread of its own, such as an engine: it ends before the interpreter does, and a child made by
// fork(), which does not have the thread, leaves it alone.
#pragma once

#include <unistd.h>

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "alibi/error.h"
#include "lock.h"

namespace alibi::python {

/// Everything of the kind that lives. With the interpreter's lock.
class Background {
 public:
  Background() { all().insert(this); }
  virtual ~Background() { all().erase(this); }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  static void end_all() {
    for (Background* one : all()) one->end();
  }

 private:
  virtual void end() = 0;
  static std::set<Background*>& all() {
    static auto* const living = new std::set<Background*>;
    return *living;
  }
};

/// A `Worker`, whose destructor ends its thread.
template <class Worker>
class WithThread : public Background {
 public:
  WithThread(const char* name, std::unique_ptr<Worker> worker) : name_(name), worker_(std::move(worker)) {}
  ~WithThread() override {
    if (is_of_parent()) {
      [[maybe_unused]] Worker* const without_thread = worker_.release();
    }
  }

  /// Throws Error in a child made by fork(), and after the end.
  Worker& get() const {
    if (is_of_parent()) {
      throw Error("[" + name_ + "] it was made before fork(), and its thread is in the parent process alone; make " +
                  "another one in the child");
    }
    if (!worker_) throw Error("[" + name_ + "] the interpreter exits");
    return *worker_;
  }
  bool is_of_parent() const { return ::getpid() != process_; }

 private:
  void end() override {
    if (!is_of_parent()) worker_.reset();
  }

  const std::string name_;
  const pid_t process_ = ::getpid();
  std::unique_ptr<Worker> worker_;
};

}  // namespace alibi::python
