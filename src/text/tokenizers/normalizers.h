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
  /// Whether text that it begins with may be taken away, so that the rest does not count as the beginning.
  virtual bool strips_left() const { return false; }
};

/// Throws Error that names the place and the type for what cannot be read.
std::unique_ptr<const Normalizer> make_normalizer(const Part& part);

}  // namespace alibi::text::tokenizers
