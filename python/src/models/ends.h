// Names of the reasons for which a generated text ended.
#pragma once

#include "alibi/generate.h"

namespace alibi::python {

inline const char* name_of_end(GenerationEnd end) {
  switch (end) {
    case GenerationEnd::tokens:
      return "tokens";
    case GenerationEnd::end_of_text:
      return "end_of_text";
    case GenerationEnd::stop:
      return "stop";
    case GenerationEnd::callback:
      return "callback";
  }
  return "";
}

}  // namespace alibi::python
