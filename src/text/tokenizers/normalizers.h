// Normalizers of a tokenizer.json.
#pragma once

#include <functional>
#include <string>

#include "text/tokenizers/json_part.h"

namespace alibi::text::tokenizers {

struct Normalizer {
  std::function<std::string(std::string text)> apply;
  bool strips_left = false;  ///< It may remove text at the beginning, so that the rest does not count as the beginning.
};

/// Throws Error that names the place and the type if it is not supported.
Normalizer make_normalizer(const Part& part);

}  // namespace alibi::text::tokenizers
