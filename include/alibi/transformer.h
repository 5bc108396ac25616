// The bare transformer: a stack of pre-norm blocks over [batch, length, d_model], decoder or encoder, of any length.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/activation.h"
#include "alibi/enum_names.h"
#include "alibi/export.h"
#include "alibi/tensor.h"

namespace alibi {

/// How the model learns where a token stands. Only the embedding and the attention ever look at it.
enum class Position : uint8_t {
  alibi,       ///< Press et al. 2022: scores - slope * distance
  sinusoidal,  ///< Vaswani et al. 2017, section 3.5: sines and cosines added to the input
  rotary,      ///< Su et al. 2021: queries and keys of each layer rotated, all of head_dim
  t5,          ///< Raffel et al. 2020: a learned bias per head and bucket of distances, shared by the layers
  learned,     ///< a table of max_length vectors added to the input; cannot run past it
  none,        ///< the causal mask alone
};

enum class Norm : uint8_t { layer_norm, rms_norm };

/// What the parameters are before training.
enum class Initialization : uint8_t {
  scaled,   ///< normal with variance 1 / (3 fan_in); what leads into the residual stream divided by sqrt(2 layers)
  fairseq,  ///< uniform: attention Xavier (queries, keys, values with gain 1/sqrt(2)), feed-forward 1 / sqrt(fan_in)
};

/// ALiBi without a causal mask (the ALiBi repository's issue 5, its author's proposals).
enum class Bidirectional : uint8_t {
  symmetric,   ///< -slope * |i - j| for every head
  one_sided,   ///< the even heads see only keys at or before the query, the odd ones only keys at or after it
  two_slopes,  ///< keys after the query have slopes of their own: those of twice as many heads, alternating
};

/// Whether training changes ALiBi's slopes. Learned ones are kept as exponents, so that they stay above 0; each layer
/// has its own.
enum class SlopeTraining : uint8_t {
  fixed,
  learned,         ///< from where the fixed ones are
  learned_random,  ///< from 2^-x, where x is uniform between 0 and alibi_bias_max
};

/// The type of weights, activations and matrix products in training. Master weights, gradients of weights, statistics,
/// losses and the residual stream are float32 in either.
enum class Precision : uint8_t { f32, bf16 };
/// bf16 where this CPU multiplies bfloat16 matrices by instruction (AMX-BF16, AVX512-BF16), f32 elsewhere.
ALIBI_API Precision best_precision();

template <>
inline constexpr auto enum_names<Position> = std::to_array<EnumName<Position>>({{Position::alibi, "alibi"},
                                                                                {Position::sinusoidal, "sinusoidal"},
                                                                                {Position::rotary, "rotary"},
                                                                                {Position::t5, "t5"},
                                                                                {Position::learned, "learned"},
                                                                                {Position::none, "none"}});
template <>
inline constexpr auto enum_names<Activation> = std::to_array<EnumName<Activation>>({{Activation::gelu, "gelu"},
                                                                                    {Activation::gelu_tanh,
                                                                                     "gelu_tanh"},
                                                                                    {Activation::relu, "relu"},
                                                                                    {Activation::swiglu, "swiglu"},
                                                                                    {Activation::geglu, "geglu"}});
template <>
inline constexpr auto enum_names<Norm> = std::to_array<EnumName<Norm>>({{Norm::layer_norm, "layer_norm"},
                                                                        {Norm::rms_norm, "rms_norm"}});
template <>
inline constexpr auto enum_names<Initialization> =
    std::to_array<EnumName<Initialization>>({{Initialization::scaled, "scaled"}, {Initialization::fairseq, "fairseq"}});
template <>
inline constexpr auto enum_names<Bidirectional> =
    std::to_array<EnumName<Bidirectional>>({{Bidirectional::symmetric, "symmetric"},
                                            {Bidirectional::one_sided, "one_sided"},
                                            {Bidirectional::two_slopes, "two_slopes"}});
template <>
inline constexpr auto enum_names<SlopeTraining> =
    std::to_array<EnumName<SlopeTraining>>({{SlopeTraining::fixed, "fixed"},
                                            {SlopeTraining::learned, "learned"},
                                            {SlopeTraining::learned_random, "learned_random"}});
template <>
inline constexpr auto enum_names<Precision> = std::to_array<EnumName<Precision>>({{Precision::f32, "f32"},
                                                                                  {Precision::bf16, "bf16"}});

ALIBI_API const char* name_of(Position);
ALIBI_API const char* name_of(Activation);
ALIBI_API const char* name_of(Norm);
ALIBI_API const char* name_of(Bidirectional);
ALIBI_API const char* name_of(SlopeTraining);
ALIBI_API const char* name_of(Precision);
/// These throw UsageError with the names to choose from.
ALIBI_API Position position_from(std::string_view name);
ALIBI_API Activation activation_from(std::string_view name);
ALIBI_API Norm norm_from(std::string_view name);
ALIBI_API Bidirectional bidirectional_from(std::string_view name);
ALIBI_API SlopeTraining slope_training_from(std::string_view name);
/// "auto" is best_precision().
ALIBI_API Precision precision_from(std::string_view name);

/// The defaults are those of the small PyTorch package that popularised the method. What files, runs, commands and
/// reports say of each field comes from its declaration in src/model/model_options.cc; see alibi/model_options.h.
struct ALIBI_API TransformerConfig {
  int layers = 6;
  int d_model = 256;
  int heads = 8;         ///< divides d_model
  int kv_heads = 0;      ///< key/value heads, divides heads; 0: as many as heads
  double expansion = 1;  ///< feed-forward width / d_model (language-model presets use 4)
  float dropout = 0.1f;  ///< after attention and after the feed-forward layer, in training only
  float attention_dropout = 0;
  float activation_dropout = 0;  ///< between the two products of the feed-forward layer
  float embedding_dropout = 0;   ///< of the input, after positions were added
  bool causal = true;            ///< false: an encoder
  Position position = Position::alibi;
  double alibi_bias_max = 8;  ///< slopes go down to 2^-alibi_bias_max
  /// Of each head, or one for all, in place of slopes(heads, alibi_bias_max). With Bidirectional::two_slopes each head
  /// has two, first that of keys before the query.
  std::vector<float> alibi_slopes = {};
  SlopeTraining slope_training = SlopeTraining::fixed;
  Bidirectional bidirectional = Bidirectional::symmetric;
  int64_t window = 0;  ///< > 0: attention sees keys at a distance below it alone (sliding-window attention)
  int t5_buckets = 32;
  int t5_max_distance = 128;
  double t5_init = 0.02;  ///< standard deviation of the table's first values
  /// Learning rate of the table, as a multiple of that of the rest. AdamW moves every weight by about the rate in an
  /// update, and biases have farther to go than other weights: at 1 the table of a short training stays near zero
  /// (docs/paper.md, E1). The paper's recipe has another optimizer, and 1.
  double t5_rate_factor = 64;
  double rotary_theta = 10000;
  int64_t max_length = 0;  ///< learned: rows of the table
  Activation activation = Activation::gelu;
  Norm norm = Norm::layer_norm;
  float norm_eps = 1e-5f;
  bool bias = true;         ///< biases in linear layers and layer norms
  bool final_norm = false;  ///< a norm after the last block
  Initialization initialization = Initialization::scaled;
  float tolerance = 0x1p-24f;  ///< ALiBi: bound on the attention weight of keys that are not visited; 0 visits all

  int head_dim() const { return d_model / heads; }
  int ffn_dim() const { return static_cast<int>(d_model * expansion + 0.5); }
  int key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  /// Throws UsageError that names the field.
  void validate() const;
  /// Of the position table: learned positions' or T5's; 0 with the other methods.
  int64_t position_parameter_count() const;
  /// Of layers, final norm and position table.
  int64_t parameter_count() const;
};

/// A learned tensor and, once training asked for it, its gradient.
struct Parameter {
  std::string name;
  Tensor value;
  Tensor gradient;          ///< undefined until Transformer::zero_gradients()
  bool decays = false;      ///< weight decay applies (matrices; not norms, biases, position tables)
  Tensor rounded = {};      ///< bfloat16 copy for products in bf16 precision; see Transformer::weights_changed()
  bool is_operand = false;  ///< matrix products are computed with it: it has such a copy
  double rate_factor = 1;   ///< its learning rate, as a multiple of the optimizer's

  /// What products are computed with.
  const Tensor& operand() const { return rounded.defined() ? rounded : value; }
};

/// Which random numbers a training step draws (dropout): a function of these, so that resuming needs no state.
struct StepSeed {
  uint64_t seed = 0;
  uint64_t step = 0;
  uint64_t part = 0;  ///< micro-batch within the step
};

class ALIBI_API Transformer {
 public:
  explicit Transformer(const TransformerConfig& config, uint64_t seed = 0);
  ~Transformer();
  Transformer(Transformer&&) noexcept;
  Transformer& operator=(Transformer&&) noexcept;

  const TransformerConfig& config() const;
  /// ALiBi: those of each layer's heads, which may have been learned; empty with other positions. With slopes of their
  /// own for keys after the query, these follow. Infinity: the head does not look that way.
  std::vector<std::vector<float>> slopes() const;

  /// x [batch, length, d_model] -> the same shape. Inference: no dropout, nothing remembered, memory O(length).
  Tensor operator()(const Tensor& x) const;

  /// The same in training; remembers what backward needs. A second call before backward replaces the first. The result
  /// is float32, or bfloat16 in bf16 precision.
  Tensor forward(const Tensor& x, const StepSeed& seed);
  /// dy [batch, length, d_model] of the type of forward's result -> dx, float32, which the next call overwrites; adds
  /// to the gradients of the parameters.
  Tensor backward(const Tensor& dy);

  /// Moves the parameters; inputs must lie there from then on, and results do.
  void to(Device device);

  /// Of training and inference; f32 at first. In bf16 the tolerance of the skip rule is at least 2^-11, half the
  /// rounding of the type.
  void set_precision(Precision precision);
  Precision precision() const;
  /// Training keeps a fifth of the activations or less and computes the rest again in the backward pass, to the same
  /// bits: less memory, about a fifth more time.
  void set_recompute(bool recompute);
  /// To be called after values of parameters were changed: brings the bfloat16 copies up to date.
  void weights_changed();

  /// In a fixed order, with the names they have on disk.
  std::vector<Parameter>& parameters();
  const std::vector<Parameter>& parameters() const;
  /// Makes gradients where there are none yet, and sets all to zero.
  void zero_gradients();
  /// Forgets what forward remembered and frees it.
  void release_activations();

  struct State;  ///< private to the library
  const State& state() const { return *state_; }

 private:
  friend class LanguageModel;
  /// Without a seed the parameters hold nothing yet: they are about to be loaded.
  ALIBI_HIDDEN Transformer(const TransformerConfig& config, std::optional<uint64_t> seed);
  std::unique_ptr<State> state_;
};

}  // namespace alibi
