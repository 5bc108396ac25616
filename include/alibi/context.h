// The state of a text that a model reads: later calls cost only the new tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "alibi/eviction.h"
#include "alibi/export.h"
#include "alibi/tensor.h"

namespace alibi {

class LanguageModel;

/// Data type and limits of a context. With a limit it evicts keys and values beyond the horizon of their head, those of
/// steep heads first, or with gates those that no later query needs (KvCache::evict_negligible). EvictionCertificate
/// bounds their contribution.
struct ContextOptions {
  std::optional<DType> cached = {};    ///< float32, bfloat16 or q8_0 (KvCache); absent: that of the model's precision
  std::optional<int64_t> memory = {};  ///< maximum bytes of keys and values
  std::optional<double> eviction_tolerance = {};  ///< evict keys whose share of a row's weight would be below this
  /// With gates: assumed bound of the norms of later queries. Absent: the model's QK norm or clamp gives it, or else it
  /// is 1.25 times each head's largest norm so far. The certificate holds for longer queries, too.
  std::optional<double> query_norm = {};
  bool exact = false;  ///< throw Error before the share of evicted keys exceeds the tolerance, or
                       ///< rounding if there is no tolerance

  bool evicts() const { return memory || eviction_tolerance; }
};

/// Keys and values of every layer for the tokens that a model has read. They grow with the text, without a fixed limit.
/// Pass a context to next_logits(), nll() or hidden() of the same model; their ids continue the text.
///
/// Long inputs are read in pieces of some thousand tokens, so the memory beside the cache is bounded. The division of a
/// text into calls changes results by rounding. Contexts that were read by the same calls give the same bits, including
/// forked and rewound ones. A call that throws leaves the context unchanged, except that a context that has evicted
/// keys during the call rolls back to its last eviction.
///
/// If the parameters of the model change, make a new context. Only one thread at a time may use a context.
class ALIBI_API Context {
 public:
  /// Throws Error if the model is an encoder or not in the CPU's memory, and UsageError for a limit if its position
  /// method has no bound on far keys or the limit is too small.
  explicit Context(const LanguageModel& model, const ContextOptions& options = {});
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  /// Number of tokens read, which is the position of the next token.
  int64_t position() const;
  /// A second context with the same text. Both share its memory until one of them reads more than a few tokens in one
  /// call, or evicts keys.
  Context fork() const;
  /// Removes all but the first `position` tokens. Throws Error if fewer have been read, or if keys were evicted since
  /// then. Position 0 is always possible.
  void rewind(int64_t position);
  /// Certificate over all tokens read so far.
  EvictionCertificate certificate() const;

  DType dtype() const;
  /// Bytes of keys and values, including shared memory.
  int64_t bytes() const;
  /// The part of bytes() that belongs to the context that it was forked from and is shared with its other forks.
  int64_t shared_bytes() const;

 private:
  friend struct core::Access;
  struct State;
  ALIBI_HIDDEN explicit Context(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace alibi
