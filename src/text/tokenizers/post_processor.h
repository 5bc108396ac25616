// Post-processors of a tokenizer.json: the special tokens around a text or two.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/json.h"
#include "text/tokenizers/json_part.h"

namespace alibi::text::tokenizers {

/// Ids, and for each whether it belongs to the first text (0) or to the second one (1), as the model needs it.
struct Sequence {
  std::vector<int32_t> ids, types;
};

class PostProcessor {
 public:
  /// Adds nothing.
  PostProcessor() = default;
  /// Throws Error that names the place and the type for what cannot be read, and tokens of ids that are not below
  /// `end`.
  PostProcessor(const Part& part, int32_t end);

  Sequence apply(const std::vector<int32_t>& first, const std::optional<std::vector<int32_t>>& second,
                 bool add_special) const;

 private:
  struct Piece {
    int text = -1;  ///< 0 or 1, or these tokens:
    std::vector<int32_t> ids;
    int32_t type = 0;
  };
  using Template = std::vector<Piece>;

  void read(const Part& part, int32_t end);
  void read_template(const Part& part, int32_t end);

  Template single_ = {{0, {}, 0}}, pair_ = {{0, {}, 0}, {1, {}, 1}};
  Template bare_pair_ = {{0, {}, 0}, {1, {}, 1}};  ///< where special tokens are not wanted
  bool adds_ = false;
};

}  // namespace alibi::text::tokenizers
