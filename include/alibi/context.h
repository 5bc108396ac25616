// A text being read: a language model goes on from what it has read before, at the cost of the new tokens alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "alibi/eviction.h"
#include "alibi/export.h"
#include "alibi/tensor.h"

namespace alibi {

class LanguageModel;

/// What a context keeps. With a limit of either kind it evicts keys and values that lie past the reach of their head,
/// steep heads' first, and bounds what they could have contributed: EvictionCertificate.
struct ContextOptions {
  std::optional<DType> cached = {};      ///< float32, or bfloat16 for half the memory; absent: as the model's precision
  std::optional<int64_t> memory = {};    ///< most bytes of keys and values
  std::optional<double> tolerance = {};  ///< keys are evicted where they would weigh less than this share of a row
  bool exact = false;                    ///< throw Error rather than pass the tolerance, or, without one, rounding

  bool evicts() const { return memory || tolerance; }
};

/// What a model remembers of the tokens that it has read: keys and values of every layer, which grow with the text,
/// without a fixed limit. To be given to next_logits(), nll() or hidden() of that model, whose ids stand after these
/// tokens.
///
/// Long inputs are read in pieces of some thousand tokens, so memory beside the cache is bounded. How a text is cut
/// into calls changes results by rounding; contexts that were read in the same calls give the same bits, forked and
/// rewound ones too. A call that throws leaves the context as it was; one that had evicted keys before that stays
/// where it did so last.
///
/// Whoever changes the parameters of the model makes a new context. One context serves one thread at a time.
class ALIBI_API Context {
 public:
  /// Throws Error if the model is an encoder, or does not lie in the CPU's memory; UsageError for a limit if its
  /// positions bound nothing, or if the limit is too small.
  explicit Context(const LanguageModel& model, const ContextOptions& options = {});
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  /// Tokens read, which is the position of the next one.
  int64_t position() const;
  /// Another context that has read the same. What both have read is held once, until one of them reads more than a few
  /// tokens at a time, or evicts keys.
  Context fork() const;
  /// Forgets all but the first `position` tokens. Throws Error if it has not read so many, or if it has evicted keys
  /// since then; the beginning, 0, is always there.
  void rewind(int64_t position);
  /// Of all that was read since the beginning.
  EvictionCertificate certificate() const;

  DType dtype() const;
  /// Memory that keys and values occupy, what it shares included.
  int64_t bytes() const;
  /// Of it, the memory of the context that it was forked from, which other forks of that one share.
  int64_t shared_bytes() const;

  struct State;  ///< private to the library
  State& state() { return *state_; }

 private:
  ALIBI_HIDDEN explicit Context(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace alibi
