// Post-processors of a tokenizer.json, which add special tokens around one text or two.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/json.h"
#include "text/tokenizers/json_part.h"

namespace alibi::text::tokenizers {

/// Ids, and for each id whether it belongs to the first text (0) or to the second one (1), as models expect.
struct Sequence {
  std::vector<int32_t> ids, types;
};

class PostProcessor {
 public:
  /// A post-processor that adds nothing.
  PostProcessor() = default;
  /// Throws Error that names the place and the type if it is not supported, or if a token's id is not below `end`.
  PostProcessor(const Part& part, int32_t end);

  Sequence apply(const std::vector<int32_t>& first, const std::optional<std::vector<int32_t>>& second,
                 bool add_special) const;

 private:
  struct Piece {
    int text = -1;  ///< 0 or 1 for a text; otherwise these tokens:
    std::vector<int32_t> ids;
    int32_t type = 0;
  };
  using Template = std::vector<Piece>;

  void read(const Part& part, int32_t end);
  void read_template(const Part& part, int32_t end);

  Template single_ = {{0, {}, 0}}, pair_ = {{0, {}, 0}, {1, {}, 1}};
  Template bare_pair_ = {{0, {}, 0}, {1, {}, 1}};  ///< used if special tokens are not requested
  bool adds_ = false;
};

}  // namespace alibi::text::tokenizers
