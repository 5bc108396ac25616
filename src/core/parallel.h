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

/// Calls body(task) once for each task in [0, tasks), on up to threads() threads, in rising order. The division into
/// tasks must depend only on shapes, never on the number of threads; this makes results independent of that number. A
/// nested call runs in the calling thread, and so does a call made while another thread's loop uses the pool. If tasks
/// throw, the exception of the lowest such task is rethrown here.
template <class Body>
void parallel_for(int64_t tasks, const Body& body) {
  detail::parallel_for(
      tasks, [](const void* b, int64_t task) { (*static_cast<const Body*>(b))(task); }, std::addressof(body));
}

/// ceil(a / b) for a >= 0 and b > 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Divides [0, n) into pieces of `grain` elements and calls body(begin, end) for each in parallel.
template <class Body>
void parallel_ranges(int64_t n, int64_t grain, const Body& body) {
  parallel_for(ceil_div(n, grain), [&](int64_t task) {
    const int64_t begin = task * grain;
    const int64_t end = begin + grain < n ? begin + grain : n;
    body(begin, end);
  });
}

}  // namespace alibi::core
