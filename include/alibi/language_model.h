// A language model: embedding, Transformer, output projection.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/export.h"
#include "alibi/tokenizer.h"
#include "alibi/transformer.h"

namespace alibi {

namespace model {
class OriginalFormat;  // private to the library
}

/// Adaptive input (Baevski & Auli 2019) and adaptive softmax (Grave et al. 2017) in place of one table: the vocabulary,
/// whose ids are sorted by frequency, is cut into bands; a rarer band has narrower vectors, projected to d_model.
/// Tables and projections are shared by input and softmax.
struct AdaptiveConfig {
  std::vector<int64_t> cutoffs;  ///< first id of the second band, of the third ..., rising; empty: one band
  int factor = 4;                ///< the vectors of a band are narrower by this factor than those of the band before
  float dropout = 0;             ///< dropout rate of the states in the softmax and of their projections
};

struct VocabularyBand {
  int64_t first = 0;  ///< id
  int64_t words = 0;
  int width = 0;  ///< elements of a vector
};

struct ALIBI_API LanguageModelConfig {
  TransformerConfig transformer;
  int vocab_size = 257;
  int64_t train_length = 0;                ///< sequence length of the (last) training
  std::optional<AdaptiveConfig> adaptive;  ///< absent: one table [vocab_size, d_model]

  void validate() const;
  /// Encoders that predict tokens: the id that stands where a token is to be predicted, the last of the vocabulary.
  std::optional<int32_t> mask_token() const;
  /// The bands of `adaptive`, or one band for the whole table.
  std::vector<VocabularyBand> bands() const;
  /// Number of parameters, computed without making the model.
  int64_t parameter_count() const;
};

/// Configuration of a named size: tiny, small, base, medium, large (GPT-like; feed-forward expansion 4, no biases, as
/// MPT); the ALiBi paper's models wikitext103 (docs/explanation/recipe.md) and paper-1.3b. Throws UsageError with the
/// valid names. `with_position` changes the position method and `with_vocab_size` the vocabulary.
ALIBI_API LanguageModelConfig preset(std::string_view name);
ALIBI_API std::vector<std::string> preset_names();
/// The same model with another position method and its settings (embedding scale, table of `train_length` rows).
/// Adaptive models scale their embeddings by sqrt(d_model) with every method, as in their paper.
ALIBI_API LanguageModelConfig with_position(LanguageModelConfig config, Position position, int64_t train_length);
/// The same model with another dropout rate, also for the embeddings if they have dropout.
ALIBI_API LanguageModelConfig with_dropout(LanguageModelConfig config, float dropout);
/// The same model with another vocabulary size, to which an encoder adds the mask. Bands that would begin past its end
/// are left out.
ALIBI_API LanguageModelConfig with_vocab_size(LanguageModelConfig config, int tokens);

struct GenerateOptions {
  int64_t max_tokens = 256;
  double temperature = 1.0;  ///< 0: always the most likely token
  int top_k = 0;             ///< only the k most likely tokens; 0: all
  double top_p = 1.0;        ///< the smallest set of tokens with this probability (nucleus sampling)
  double min_p = 0;          ///< only tokens at least this times as probable as the most likely one
  /// Penalty of tokens that occur in the prompt or in the generated text: logits above 0 are divided by it, others are
  /// multiplied by it (Keskar et al. 2019). 1 disables it; values below 1 make these tokens more likely.
  double repetition_penalty = 1;
  /// Subtracted from the logit of each token of the generated text: the first once, the second for each occurrence (the
  /// penalties of OpenAI's API). 0 disables them; values below 0 make these tokens more likely.
  double presence_penalty = 0, frequency_penalty = 0;
  std::map<int32_t, float> logit_bias = {};  ///< added to the logits of these tokens, before the penalties
  uint64_t seed = 0;
  bool stop_at_end_of_text = false;    ///< false: that token is never drawn
  std::vector<std::string> stop = {};  ///< generation ends before the first occurrence of any of these strings
  /// Called with each new piece of text; return false to stop. A piece holds whole UTF-8 characters, and as they are
  /// the bytes that the model has generated outside of any character. The pieces together are the text.
  std::function<bool(std::string_view)> on_text = {};
  /// Called with each token that was drawn, before its text; return false to make it the last one.
  std::function<bool(int32_t)> on_token = {};
};

/// Position interpolation: positions are multiplied by training length / length, so that they have the range that they
/// had in training. For ALiBi this multiplies the slopes (Al-Khateeb et al. 2023, arXiv 2310.13017), for rotary
/// positions the angles (Chen et al. 2023, arXiv 2306.15595), or they are scaled as `rotary` says.
struct Interpolation {
  double factor = 1;     ///< positions are divided by it
  bool dynamic = false;  ///< divide positions by length of the text / `from` instead, if that is above 1
  int64_t from = 0;      ///< the length up to which positions stay as they are (dynamic, yarn); 0: train_length
  RotaryScaling rotary = RotaryScaling::linear;  ///< others than linear need rotary positions, and keep biases
};

class Context;  // alibi/context.h

class ALIBI_API LanguageModel {
 public:
  explicit LanguageModel(const LanguageModelConfig& config, uint64_t seed = 0,
                         std::shared_ptr<const Tokenizer> tokenizer = nullptr);
  ~LanguageModel();
  LanguageModel(LanguageModel&&) noexcept;
  LanguageModel& operator=(LanguageModel&&) noexcept;

  /// Reads a model: a folder that save() wrote, a folder of another program's model of a supported family, or a GGUF
  /// file (docs/reference/families.md). Matrices keep the data type of the file and, where their layout allows, are
  /// read from the mapped file; call to_float32() before you change values. Models of other programs may have no
  /// tokenizer. Throws Error that names the file
  /// and what is wrong with it or not supported.
  static LanguageModel load(const std::filesystem::path& folder);
  /// The same; `adjust` may change what the weights do not depend on: dropout, tolerance, training length.
  static LanguageModel load(const std::filesystem::path& folder,
                            const std::function<void(LanguageModelConfig&)>& adjust);
  /// Writes such a folder. A model that was read from the folder of another program's family is written as that family
  /// has it, with the other fields of its config.json and its tokenizer's files; its weights keep their data types if
  /// these hold them exactly, else they become float32. The write is atomic: if the process is killed, the folder holds
  /// the old model or the new one.
  void save(const std::filesystem::path& folder) const;

  const LanguageModelConfig& config() const;
  /// See Transformer::slopes().
  std::vector<std::vector<float>> slopes() const;
  void set_train_length(int64_t length);
  /// Whether the model has a tokenizer; models of other programs may have none.
  bool has_tokenizer() const;
  const Tokenizer& tokenizer() const;
  int64_t parameter_count() const;
  /// Bytes of the parameters in their data types, in memory and in mapped files together.
  int64_t weight_bytes() const;
  /// Copies parameters of other data types, and those in mapped files, to float32 memory of their own, to be changed.
  void to_float32();

  /// Converts the matrices (linear layers, embedding, output projection) to bfloat16, q8_0, q4_0 or q4_k, rounded to
  /// nearest, so that inference needs less memory and reads less of it; or to float32. Matrices whose rows do not fill
  /// the blocks of the type keep theirs. Throws UsageError for other types.
  void convert_weights(DType type);

  /// Whether inference rounds the inputs of products with weights in blocks (q8_0, q4_0, q4_k, q5_k, q6_k) to 8 bits,
  /// with a scale for each 32 numbers, as llama.cpp does: faster, and less exact than the weights alone make it. The
  /// sums of a block are exact, so these products do not depend on the batch, the threads or the instruction set. False
  /// at first.
  void set_quantized_activations(bool wanted);
  bool quantized_activations() const;

  /// ids int32 [batch, length] -> final hidden states [batch, length, d_model].
  Tensor hidden(const Tensor& ids) const;
  /// ids int32 [batch, length] -> float32 [batch, length, vocab_size]; those of adaptive models are log-probabilities.
  Tensor logits(const Tensor& ids) const;
  /// The same for sequences of several lengths. attention_mask, int32 [batch, length], is 1 for the tokens of a row,
  /// which are consecutive, and 0 for padding before or after them. Each row has the result that it has alone; logits
  /// of padding are 0.
  Tensor logits(const Tensor& ids, const Tensor& attention_mask) const;
  /// The same for the token after the last one only: float32 [batch, vocab_size].
  Tensor next_logits(const Tensor& ids) const;
  /// Negative log-likelihood (nats) of each target [batch, length] given the ids up to its place, row-major; a target
  /// of -1 is not scored (0). Logits are computed for a part of the rows at a time.
  std::vector<float> nll(const Tensor& ids, const Tensor& targets) const;

  /// The same for ids [1, length] that continue the text of the context, which includes them afterwards. Only the new
  /// ids are computed. Throws Error, and leaves the context unchanged, if it belongs to another model or if the
  /// positions of this model end before the last id.
  Tensor hidden(const Tensor& ids, Context& context) const;
  Tensor next_logits(const Tensor& ids, Context& context) const;
  std::vector<float> nll(const Tensor& ids, const Tensor& targets, Context& context) const;

  /// Several texts at once, which may be at different positions: row i of ids [batch, length] continues contexts[i].
  /// The weights are read once for all rows. A row has the result that it would have alone, except for the rounding of
  /// larger products. Throws Error as above and if a context is given twice; then all contexts are unchanged.
  Tensor hidden(const Tensor& ids, std::span<Context* const> contexts) const;
  Tensor next_logits(const Tensor& ids, std::span<Context* const> contexts) const;
  std::vector<float> nll(const Tensor& ids, const Tensor& targets, std::span<Context* const> contexts) const;

  /// Sets the interpolation for all later use except training; it is not saved. With `dynamic` and a context, the
  /// length is that after the call, so results depend on the division of a text into calls; a context of a model with
  /// rotary positions refuses a second call, and the factor must not change while one is in use. Throws UsageError
  /// unless the position method is rotary or, with RotaryScaling::linear, has a formula of the distance such as ALiBi,
  /// if the factor is not positive, or if the model has no train_length, which dynamic and yarn need.
  void set_interpolation(const Interpolation& interpolation);
  const Interpolation& interpolation() const;

  /// As in Transformer, for the whole model. Call weights_changed() after you change values of parameters.
  void set_precision(Precision precision);
  Precision precision() const;
  void set_recompute(bool recompute);
  void weights_changed();

  /// Training: the sum of nll over the targets; adds gradient_scale * d(sum)/d(parameter) to the gradients.
  double accumulate_gradients(const Tensor& ids, const Tensor& targets, float gradient_scale, const StepSeed& seed);
  std::vector<Parameter*> parameters();
  std::vector<const Parameter*> parameters() const;
  /// Also converts parameters to float32.
  void zero_gradients();
  /// Frees the memory that training keeps between steps.
  void release_training_memory();

  /// Generates text of any length after the prompt, which starts a document. Each token is computed once.
  /// alibi/generate.h has more: several texts after one prompt, and how each ended.
  std::string generate(std::string_view prompt, const GenerateOptions& options = {}) const;

  /// The same with token ids, also for models without a tokenizer. Returns the max_tokens ids after the prompt. Of the
  /// options it uses max_tokens, seed and those of sampling.
  std::vector<int32_t> generate_ids(std::span<const int32_t> prompt, const GenerateOptions& options = {}) const;

  /// A model with uninitialized parameters, for loaders.
  static LanguageModel without_values(const LanguageModelConfig& config, std::shared_ptr<const Tokenizer> tokenizer,
                                      std::shared_ptr<const model::OriginalFormat> origin = nullptr);
  const model::OriginalFormat* origin() const;  ///< private to the library
  /// A model with the same weights, in shared memory, and the same precision and interpolation; `adjust` is as in
  /// load().
  LanguageModel sharing_weights(const std::function<void(LanguageModelConfig&)>& adjust) const;

 private:
  friend struct core::Access;
  struct State;
  ALIBI_HIDDEN explicit LanguageModel(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace alibi
