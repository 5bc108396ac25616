// The loss of each token of a text, which may be endless, in constant memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "alibi/context.h"
#include "alibi/export.h"
#include "alibi/language_model.h"

namespace alibi {

struct ScoreOptions {
  int64_t context_length = 0;   ///< maximum number of tokens that a target is predicted from; 0: the model's training
                                ///< length, or unlimited if the context has a limit
  ContextOptions context = {};  ///< with a limit, keys are evicted and no tokens are read again
};

/// Scores tokens as they arrive, in parts of any size. Each token is predicted from the tokens before it, at most
/// `context_length` of them. When a context is full, the next one starts with its last context_length / 2 tokens, so
/// later tokens see between context_length / 2 + 1 and `context_length` tokens. For an even number these are the
/// windows of evaluate() with a stride of context_length / 2.
class ALIBI_API Scorer {
 public:
  /// Keeps a reference to the model. Throws UsageError if the length is below 0, Error if the model is an encoder or
  /// its positions end before it.
  explicit Scorer(const LanguageModel& model, const ScoreOptions& options = {});

  int64_t length() const { return length_; }
  /// Certificate of the context since its start.
  EvictionCertificate certificate() const { return context_.certificate(); }
  /// Returns the negative log-likelihood (nats) of each token. Throws NotFiniteError if the model overflows.
  std::vector<float> score(std::span<const int32_t> tokens);

 private:
  ALIBI_HIDDEN void begin_again();

  const LanguageModel& model_;
  int64_t length_;
  Context context_;
  std::vector<int32_t> read_;  // tokens in the context
  int32_t last_;               // the token before the next one
};

}  // namespace alibi
