// Texts that a model writes after a prompt, which is read once. Options: GenerateOptions, alibi/language_model.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/context.h"
#include "alibi/export.h"
#include "alibi/language_model.h"

namespace alibi {

enum class GenerationEnd : uint8_t {
  tokens,       ///< as many as were asked for
  end_of_text,  ///< the model drew that token
  stop,         ///< one of GenerateOptions::stop
  callback,     ///< on_text or on_token returned false
};

struct ALIBI_API Generation {
  std::string text;
  int64_t tokens = 0;  ///< drawn; those of a stop string that were cut off and an end of text are among them
  GenerationEnd end = GenerationEnd::tokens;
  double seconds = 0;               ///< from the first of them to the last
  int64_t cache_bytes = 0;          ///< what keys and values took in the end,
  int64_t shared_bytes = 0;         ///< and of it what it shared with the prompt
  EvictionCertificate certificate;  ///< of the context, the prompt included

  double tokens_per_second() const;
};

/// A document's beginning that a model has read, and goes on from as often as it is asked to. A model that does not lie
/// in the CPU's memory, where contexts are, computes the text anew for each token.
class ALIBI_API Prompt {
 public:
  /// Keeps a reference to the model. Throws what Context and next_logits() throw; UsageError for a limit where the
  /// model does not lie in the CPU's memory.
  Prompt(const LanguageModel& model, std::string_view text, const ContextOptions& context = {});
  ~Prompt();
  Prompt(Prompt&&) noexcept;
  Prompt& operator=(Prompt&&) noexcept;

  /// Tokens read, the end of text before the first one included.
  int64_t tokens() const;
  /// What reading took.
  double seconds() const;
  /// Memory that keys and values occupy.
  int64_t bytes() const;

  /// One text. Those of different `sample` differ as if the seed were another; 0 is what LanguageModel::generate()
  /// writes. Each goes on from a fork. Throws UsageError for options that make no sense.
  Generation generate(const GenerateOptions& options = {}, int64_t sample = 0) const&;
  /// The last one, without a copy of what was read.
  Generation generate(const GenerateOptions& options = {}, int64_t sample = 0) &&;

  /// The same beginning, to go its own way.
  Prompt fork() const;
  /// Texts after several prompts at once, which may be of any lengths: the weights are read once for a token of each.
  /// Text i draws as sample first_sample + i; up to eight give the bits that each gives alone, more of them but for
  /// rounding. `options`: one for each prompt, or one for all. Throws UsageError if the prompts are not of one model in
  /// the CPU's memory.
  static std::vector<Generation> generate_batch(std::vector<Prompt> prompts,
                                                const std::vector<GenerateOptions>& options, int64_t first_sample = 0);

 private:
  struct Session;
  class Request;
  ALIBI_HIDDEN explicit Prompt(std::unique_ptr<Session> session);
  std::unique_ptr<Session> session_;
};

}  // namespace alibi
