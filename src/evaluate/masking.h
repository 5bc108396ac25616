// Choice of the tokens that an encoder predicts, and their replacements (Devlin et al. 2019, section 3.1).
#pragma once

#include <cstdint>

#include "core/random.h"

namespace alibi::evaluation {

class Masking {
 public:
  /// `mask` is the id of the mask token, which follows all other tokens.
  Masking(double rate, const core::Random& random, int32_t mask)
      : below_(static_cast<uint64_t>(rate * 0x1p32)), random_(random), mask_(mask) {}

  /// Whether the token at this position is predicted.
  bool asks(uint64_t place) const { return random_.block(place)[0] < below_; }

  struct Token {
    int32_t input, target;  ///< target -1 means that the token is not predicted
  };
  /// Of the predicted tokens, 80 % are masked, 10 % are replaced by a random token, and 10 % are unchanged.
  Token operator()(int32_t token, uint64_t place) const {
    const auto [chosen, how, other, unused] = random_.block(place);
    if (chosen >= below_) return {token, -1};
    constexpr uint32_t tenth = UINT32_MAX / 10;
    if (how >= 2 * tenth) return {mask_, token};
    if (how >= tenth) return {token, token};
    return {static_cast<int32_t>((uint64_t{other} * static_cast<uint64_t>(mask_)) >> 32), token};
  }

 private:
  uint64_t below_;
  core::Random random_;
  int32_t mask_;
};

}  // namespace alibi::evaluation
