// Names of the reasons for which a generated text ended.
#pragma once

#include "alibi/generate.h"

namespace alibi::python {

inline const char* name_of_end(GenerationEnd end) {
  constexpr const char* names[] = {"tokens", "end_of_text", "stop", "callback"};
  return names[static_cast<size_t>(end)];
}

}  // namespace alibi::python
