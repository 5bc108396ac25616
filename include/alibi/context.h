// A text being read: a language model goes on from what it has read before, at the cost of the new tokens alone.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "alibi/export.h"
#include "alibi/tensor.h"

namespace alibi {

class LanguageModel;

/// What a model remembers of the tokens that it has read: keys and values of every layer, which grow with the text,
/// without a fixed limit. To be given to next_logits(), nll() or hidden() of that model, whose ids stand after these
/// tokens.
///
/// Long inputs are read in pieces of some thousand tokens, so memory beside the cache is bounded. How a text is cut
/// into calls changes results by rounding; contexts that were read in the same calls give the same bits, forked and
/// rewound ones too. A call that throws leaves the context as it was.
///
/// Whoever changes the parameters of the model makes a new context. One context serves one thread at a time.
class ALIBI_API Context {
 public:
  /// `cached`: float32, or bfloat16 for half the memory; absent: as the model's precision. Throws Error if the model is
  /// an encoder, or does not lie in the CPU's memory.
  explicit Context(const LanguageModel& model, std::optional<DType> cached = {});
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  /// Tokens read, which is the position of the next one.
  int64_t position() const;
  /// Another context that has read the same, with memory of its own.
  Context fork() const;
  /// Forgets all but the first `position` tokens. Throws Error if it has not read so many.
  void rewind(int64_t position);

  DType dtype() const;
  /// Memory that keys and values occupy.
  int64_t bytes() const;

  struct State;  ///< private to the library
  State& state() { return *state_; }

 private:
  explicit Context(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace alibi
