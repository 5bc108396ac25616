// Errors thrown by the library. The library never aborts, prints or exits.
#pragma once

#include <stdexcept>
#include <string>

#include "alibi/export.h"

namespace alibi {

/// What every function of the library throws. The message begins with the operation in brackets and shows what was
/// found against what was expected: "[attention] k has 6 heads, q has 8; ...".
class ALIBI_API Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The caller asked for something that makes no sense (an unknown option value, a length of 0). The command line
/// turns it into exit code 2; every other Error is exit code 1.
class ALIBI_API UsageError : public Error {
 public:
  using Error::Error;
};

/// Numbers that overflowed: a training that diverged, or weights too large for the model to compute with.
class ALIBI_API NotFiniteError : public Error {
 public:
  using Error::Error;
};

}  // namespace alibi
