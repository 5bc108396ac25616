// Checks that throw: check(condition, "[operation] found {}, expected {}", ...). A Shape can be passed directly; it is
// formatted only if the check fails.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "alibi/error.h"

namespace alibi::core {

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void check(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    fail(format, std::forward<Args>(args)...);
}

template <class... Args>
void check_usage(bool condition, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]]
    fail_usage(format, std::forward<Args>(args)...);
}

}  // namespace alibi::core

namespace alibi {

// These four names are used in every folder without their namespace.
using core::check;
using core::check_usage;
using core::fail;
using core::fail_usage;

}  // namespace alibi
