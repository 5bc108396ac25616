// Sampling of the next token.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "alibi/language_model.h"
#include "core/random.h"

namespace alibi::generation {

/// Throws UsageError if an option is out of range, or logit_bias has a token that the vocabulary does not have.
void check_options(const GenerateOptions& options, int vocab_size = std::numeric_limits<int>::max());

/// Throws NotFiniteError unless all logits are finite.
void check_logits(std::span<const float> logits);

/// Draws a token from float32 logits [vocab_size] with temperature, top_k, top_p and min_p. `draw` is the index of the
/// draw; a sample is a function of (seed, draw). The token `banned` is never drawn; -1 bans no token.
int32_t sample_token(std::span<const float> logits, const GenerateOptions& options, const core::Random& random,
                     uint64_t draw, int32_t banned);

/// Changes the logits as the options' biases and penalties say, which depend on the tokens of the text.
class Penalties {
 public:
  /// Keeps a reference to the options.
  Penalties(const GenerateOptions& options, std::span<const int32_t> prompt);

  /// Valid until the next call. Without biases and penalties these are the given logits.
  std::span<const float> apply(std::span<const float> logits);
  /// A token was drawn.
  void add(int32_t token);

 private:
  const GenerateOptions& options_;
  bool counts_tokens_;
  std::map<int32_t, int64_t> drawn_;  // how often each token of the text was drawn; 0: it is in the prompt only
  std::vector<float> changed_;
};

}  // namespace alibi::generation
