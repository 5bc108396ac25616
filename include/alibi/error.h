// Errors thrown by the library. The library never aborts, prints or exits.
#pragma once

#include <stdexcept>
#include <string>

#include "alibi/export.h"

namespace alibi {

/// Thrown by every function of the library. The message begins with the operation in brackets and shows what was found
/// and what was expected: "[attention] k has 6 heads, q has 8; ...".
class ALIBI_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Invalid arguments, such as an unknown option value or a length of 0. The command exits with code 2 for it, and with
/// code 1 for every other Error.
class ALIBI_API UsageError : public Error {
 public:
  using Error::Error;
};

/// Numbers overflowed: a training diverged, or the weights are too large to compute with.
class ALIBI_API NotFiniteError : public Error {
 public:
  using Error::Error;
};

}  // namespace alibi
