// Generation of texts after a prompt, which is read once. GenerateOptions is in alibi/language_model.h.
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
  tokens,       ///< max_tokens tokens were generated
  end_of_text,  ///< the model drew the end-of-text token
  stop,         ///< the text reached one of GenerateOptions::stop
  callback,     ///< on_text or on_token returned false
};

struct ALIBI_API Generation {
  std::string text;
  int64_t tokens = 0;  ///< number of tokens drawn, including those of a stop string that was cut off and an end of text
  GenerationEnd end = GenerationEnd::tokens;
  double seconds = 0;               ///< from the first token to the last
  int64_t cache_bytes = 0;          ///< bytes of keys and values at the end
  int64_t shared_bytes = 0;         ///< the part of cache_bytes that is shared with the prompt
  EvictionCertificate certificate;  ///< certificate of the context, including the prompt

  double tokens_per_second() const;
};

/// A prompt that a model has read. Texts can be generated from it any number of times. If the model is not in the CPU's
/// memory, where contexts are, each token computes the whole text again.
class ALIBI_API Prompt {
 public:
  /// Keeps a reference to the model. Throws what Context and next_logits() throw, and UsageError for a limit if the
  /// model is not in the CPU's memory.
  Prompt(const LanguageModel& model, std::string_view text, const ContextOptions& context = {});
  ~Prompt();
  Prompt(Prompt&&) noexcept;
  Prompt& operator=(Prompt&&) noexcept;

  /// Number of tokens read, including the end of text before the first one.
  int64_t tokens() const;
  /// Seconds that reading the prompt took.
  double seconds() const;
  /// Bytes of keys and values.
  int64_t bytes() const;

  /// Generates one text from a fork of the prompt. Each `sample` has its own random numbers; sample 0 is the text of
  /// LanguageModel::generate(). Throws UsageError for invalid options.
  Generation generate(const GenerateOptions& options = {}, int64_t sample = 0) const&;
  /// Generates from the prompt itself, without a copy.
  Generation generate(const GenerateOptions& options = {}, int64_t sample = 0) &&;

  /// An independent prompt that shares what was read.
  Prompt fork() const;
  /// Generates texts after several prompts of any lengths together: the weights are read once for one token of each
  /// text. Text i has the random numbers of sample first_sample + i. Up to eight texts have the bits that each would
  /// have alone; with more, results differ by rounding. `options` holds one entry per prompt, or one for all. Throws
  /// UsageError unless all prompts are of one model in the CPU's memory.
  static std::vector<Generation> generate_batch(std::vector<Prompt> prompts,
                                                const std::vector<GenerateOptions>& options, int64_t first_sample = 0);

 private:
  struct Session;
  ALIBI_HIDDEN explicit Prompt(std::unique_ptr<Session> session);
  std::unique_ptr<Session> session_;
};

}  // namespace alibi
