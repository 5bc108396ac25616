// Normalizers of a tokenizer.json.
#pragma once

#include <memory>
#include <string>

#include "formats/json.h"
#include "text/tokenizers/json_part.h"

namespace alibi::text::tokenizers {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual std::string apply(std::string text) const = 0;
  /// Whether it may remove text at the beginning, so that the rest does not count as the beginning.
  virtual bool strips_left() const { return false; }
};

/// Throws Error that names the place and the type if it is not supported.
std::unique_ptr<const Normalizer> make_normalizer(const Part& part);

}  // namespace alibi::text::tokenizers
