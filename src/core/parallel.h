// The thread pool behind every kernel.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace alibi::core {

namespace detail {
using TaskCall = void (*)(const void* body, int64_t task);
void parallel_for(int64_t tasks, TaskCall call, const void* body);
}  // namespace detail

/// Calls body(task) once for each task in [0, tasks), on as many threads as threads() says; tasks are handed out in
/// rising order. How work is cut into tasks must follow from shapes alone, never from the number of threads: that is
/// what makes results independent of it. A call from inside a task runs in the calling thread, and so does one that
/// comes while another thread's loop has the threads. The exception of the lowest task that threw is thrown again here.
template <class Body>
void parallel_for(int64_t tasks, const Body& body) {
  detail::parallel_for(
      tasks, [](const void* b, int64_t task) { (*static_cast<const Body*>(b))(task); }, std::addressof(body));
}

/// ceil(a / b) for a >= 0 and b > 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Cuts [0, n) into pieces of `grain` and calls body(begin, end) for each in parallel.
template <class Body>
void parallel_ranges(int64_t n, int64_t grain, const Body& body) {
  parallel_for(ceil_div(n, grain), [&](int64_t task) {
    const int64_t begin = task * grain;
    const int64_t end = begin + grain < n ? begin + grain : n;
    body(begin, end);
  });
}

}  // namespace alibi::core
