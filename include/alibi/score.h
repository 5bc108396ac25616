// The loss of each token of a text that need not end, in constant memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "alibi/context.h"
#include "alibi/export.h"
#include "alibi/language_model.h"

namespace alibi {

struct ScoreOptions {
  int64_t length = 0;           ///< most tokens a target is predicted from; 0: the model's training length, or without
                                ///< end where the context has a limit
  ContextOptions context = {};  ///< with a limit, keys are evicted instead of read again
};

/// Tokens come as they are there, in parts of any size. Each is predicted from those before it: from all of them up to
/// `length`, then from length / 2 + 1 to `length`, for where a context is full, its last length / 2 tokens begin the
/// next one. Of an even length these are the windows of evaluate() whose stride is length / 2.
class ALIBI_API Scorer {
 public:
  /// Keeps a reference to the model. Throws UsageError if the length is below 0, Error if the model is an encoder or
  /// its positions end before it.
  explicit Scorer(const LanguageModel& model, const ScoreOptions& options = {});

  int64_t length() const { return length_; }
  /// Of the context since it began.
  EvictionCertificate certificate() const { return context_.certificate(); }
  /// Negative log-likelihood (nats) of each token. Throws NotFiniteError where the model overflows.
  std::vector<float> score(std::span<const int32_t> tokens);

 private:
  ALIBI_HIDDEN void begin_again();

  const LanguageModel& model_;
  int64_t length_;
  Context context_;
  std::vector<int32_t> read_;  // what the context holds
  int32_t last_;               // the token before the next one
};

}  // namespace alibi
