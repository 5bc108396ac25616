// The transformer without embedding and output projection: a stack of blocks over [batch, length, d_model], as a
// decoder or an encoder, for sequences of any length.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
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

/// Position method of a model: three independent choices, each the name of a method, or empty for none. Only the input
/// and the attention depend on them.
struct Position {
  std::string_view input = {};     ///< what is added to the input of the first layer
  std::string_view rotation = {};  ///< how the queries and keys of every layer are rotated
  std::string_view bias = {};      ///< the bias of the attention scores

  bool operator==(const Position&) const = default;
  auto operator<=>(const Position&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14 sees a 0

  static const Position alibi;       ///< Press et al. 2022: a bias of -slope * distance
  static const Position sinusoidal;  ///< Vaswani et al. 2017, section 3.5: sines and cosines added to the input
  static const Position rotary;      ///< Su et al. 2021: queries and keys are rotated, over the whole head_dim
  static const Position t5;          ///< Raffel et al. 2020: a learned bias per head and distance bucket, shared by all
                                     ///< layers
  static const Position learned;     ///< a table of max_length vectors added to the input; the model cannot run past
                                     ///< max_length
  static const Position none;        ///< only the causal mask
};
inline constexpr Position Position::alibi{.bias = "alibi"};
inline constexpr Position Position::sinusoidal{.input = "sinusoidal"};
inline constexpr Position Position::rotary{.rotation = "rotary"};
inline constexpr Position Position::t5{.bias = "t5"};
inline constexpr Position Position::learned{.input = "learned"};
inline constexpr Position Position::none{};

/// Both methods in one model: Position::rotary + Position::alibi. Throws UsageError if both make the same choice.
ALIBI_API Position operator+(const Position& a, const Position& b);
/// The methods, each by itself, and "none".
ALIBI_API std::vector<std::string> position_names();
/// "rotary+alibi"
ALIBI_API std::string name_of(const Position&);
/// A name of position_names(), or several joined by '+' in any order. The result refers to names that live as long as
/// the program. Throws UsageError for other names, and for two methods that make the same choice.
ALIBI_API Position position_from(std::string_view name);

enum class Norm : uint8_t { layer_norm, rms_norm };

/// Initialization of the parameters before training.
enum class Initialization : uint8_t {
  scaled,   ///< normal, variance 1 / (3 fan_in); projections into the residual stream divided by sqrt(2 layers)
  fairseq,  ///< uniform: attention Xavier (queries, keys, values with gain 1/sqrt(2)), feed-forward 1 / sqrt(fan_in)
};

/// Whether norms have a bias.
enum class NormBias : uint8_t {
  same,    ///< layer norms have one if linear layers do
  always,  ///< layer norms have one
  never,
};

/// The tensor that the output of a branch (attention, feed-forward layer) is added to.
enum class Residual : uint8_t {
  sum,     ///< the residual stream: the input plus the outputs of all earlier branches (pre-norm)
  normed,  ///< the normalized input of the branch (post-norm); the embedding norm is then the first norm
};

/// ALiBi without a causal mask, as proposed by its author (issue 5 of the ALiBi repository).
enum class Bidirectional : uint8_t {
  symmetric,   ///< -slope * |i - j| for every head
  one_sided,   ///< the even heads see only keys at or before the query, the odd ones only keys at or after it
  two_slopes,  ///< keys after the query have slopes of their own: the slopes of twice as many heads, used alternately
};

/// Whether training changes ALiBi's slopes. Learned slopes are stored as exponents, so they stay above 0, and each
/// layer has its own.
enum class SlopeTraining : uint8_t {
  fixed,
  learned,         ///< starts from the fixed slopes
  learned_random,  ///< starts from 2^-x, where x is uniform between 0 and alibi_bias_max
};

/// Data type of weights, activations and matrix products in training. Master weights, gradients of weights, statistics,
/// losses and the residual stream are always float32.
enum class Precision : uint8_t { f32, bf16 };

/// How rotary positions are changed for texts of s times the training length (Interpolation).
enum class RotaryScaling : uint8_t {
  linear,  ///< all angles are divided by s (Chen et al. 2023, arXiv 2306.15595)
  ntk,     ///< the base is multiplied by s^(d / (d - 2)), d rotated dimensions (NTK-aware)
  yarn,    ///< slow rotations are divided by s, fast ones kept, scores raised (Peng et al. 2023, arXiv 2309.00071)
};
/// The precision with the faster products on this CPU: bf16 with AMX, and with AVX512-BF16 if bfloat16 products are at
/// least 1.2 times as fast as float32 products. This is timed once per process, in about two milliseconds.
ALIBI_API Precision best_precision();
/// The reason for best_precision(), as a clause for logs.
ALIBI_API std::string why_best_precision();

template <>
inline constexpr auto enum_names<Activation> = std::to_array<EnumName<Activation>>({{Activation::gelu, "gelu"},
                                                                                    {Activation::gelu_tanh,
                                                                                     "gelu_tanh"},
                                                                                    {Activation::relu, "relu"},
                                                                                    {Activation::relu2, "relu2"},
                                                                                    {Activation::swiglu, "swiglu"},
                                                                                    {Activation::geglu, "geglu"},
                                                                                    {Activation::reglu, "reglu"}});
template <>
inline constexpr auto enum_names<Norm> = std::to_array<EnumName<Norm>>({{Norm::layer_norm, "layer_norm"},
                                                                        {Norm::rms_norm, "rms_norm"}});
template <>
inline constexpr auto enum_names<NormBias> = std::to_array<EnumName<NormBias>>({{NormBias::same, "same"},
                                                                                {NormBias::always, "always"},
                                                                                {NormBias::never, "never"}});
template <>
inline constexpr auto enum_names<Residual> = std::to_array<EnumName<Residual>>({{Residual::sum, "sum"},
                                                                                {Residual::normed, "normed"}});
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

ALIBI_API const char* name_of(Activation);
ALIBI_API const char* name_of(Norm);
ALIBI_API const char* name_of(Bidirectional);
ALIBI_API const char* name_of(SlopeTraining);
ALIBI_API const char* name_of(Precision);
/// These throw UsageError with the valid names.
ALIBI_API Activation activation_from(std::string_view name);
ALIBI_API Norm norm_from(std::string_view name);
ALIBI_API Bidirectional bidirectional_from(std::string_view name);
ALIBI_API SlopeTraining slope_training_from(std::string_view name);
/// "auto" gives best_precision().
ALIBI_API Precision precision_from(std::string_view name);
/// The data type of converted weights (LanguageModel::convert_weights) by its name: f32, bf16, q8_0, q4_0 or q4_k.
/// Throws UsageError for other names.
ALIBI_API DType weight_type_from(std::string_view name);

/// The attention of every block.
struct AttentionConfig {
  int heads = 8;                    ///< divides d_model
  int kv_heads = 0;                 ///< number of key/value heads; divides heads; 0: as many as heads
  bool causal = true;               ///< false: an encoder, whose tokens see both sides
  int64_t sliding_window = 0;       ///< > 0: only keys at a distance below this are visible (the token itself counts)
  int full_attention_interval = 0;  ///< N > 0: the sliding window is not of every N-th layer, which sees all keys
  float dropout = 0;                ///< rate of dropped attention weights, in training
  double softmax_scale = 0;         ///< factor of the scores; 0: 1 / sqrt(head_dim)
  double clip_qkv = 0;              ///< > 0: clip queries, keys and values to [-clip_qkv, clip_qkv]
  bool qk_norm = false;             ///< normalize the queries and the keys, each over all heads together
  bool qk_norm_per_head = false;    ///< with qk_norm: over each head by itself
  float qk_norm_eps = 0;            ///< with qk_norm: added to the variance; 0: BlockConfig::norm_eps
  bool sinks = false;  ///< each head of each layer has a learned sink (AttentionOptions::sinks), which starts at 0
  /// > 0: the scores are multiplied by s log(n), where n is the number of keys that the query sees and s is learned for
  /// each head of each layer, from this value on (Scalable-Softmax, Nakanishi 2025, arXiv 2501.19399). With 1 / (mean
  /// of log(n) in training), such as 0.26 at 128 tokens, a new model begins close to one without.
  float ssmax = 0;
  bool output_gate = false;  ///< the output is multiplied by sigmoid(W x), where x is the layer's normalized input
  /// Width of a causal depthwise convolution that is added to the layer's normalized input x, before attention reads
  /// it: x + conv(x), with weights that start at zero (Canon-A, arXiv 2512.17351); 0: none.
  int canon_kernel = 0;
  /// N > 0: every N-th layer has no positions, neither a rotation nor a bias (NoPE); 0: all layers have positions.
  int nope_layer_interval = 0;
  /// The last N heads of every layer have no positions: rotary positions rotate the others, and ALiBi's slopes, given
  /// or computed, are those of the others.
  int nope_heads = 0;
  /// The sliding window of a layer; 0: none.
  int64_t window_of(int layer) const {
    return full_attention_interval > 0 && (layer + 1) % full_attention_interval == 0 ? 0 : sliding_window;
  }
  bool has_positions(int layer) const { return nope_layer_interval == 0 || (layer + 1) % nope_layer_interval != 0; }
  double alibi_bias_max = 8;  ///< ALiBi: the smallest slope is 2^-alibi_bias_max
  /// ALiBi: one slope per head, or one for all heads; they replace slopes(heads, alibi_bias_max). With
  /// Bidirectional::two_slopes each head has two: first the one for keys before the query, then the one for keys after.
  std::vector<float> alibi_slopes = {};
  SlopeTraining slope_training = SlopeTraining::fixed;
  Bidirectional bidirectional = Bidirectional::symmetric;
  /// Bound on the share of the attention weight of keys that are skipped, with a bias that falls with the distance; 0
  /// visits every key.
  float tolerance = 0x1p-24f;
  int t5_buckets = 32;        ///< T5: number of distance buckets
  int t5_max_distance = 128;  ///< T5: distances from this one on share the last bucket
  double t5_init = 0.02;      ///< T5: standard deviation of the initial bias table
  /// T5: learning rate of the bias table as a multiple of that of the other parameters. AdamW moves every weight by
  /// about the learning rate in an update, and biases have farther to go than other weights: at 1 the table stays near
  /// zero in a short training run (docs/explanation/paper.md, E1). The paper's recipe has another optimizer, and 1.
  double t5_rate_factor = 64;
  double rotary_theta = 10000;  ///< rotary positions: base of the wavelengths
  /// Numbers that other position methods have, by the names of their fields; absent: their defaults.
  std::map<std::string, double, std::less<>> position_numbers = {};
};

/// The other parts of a block: norms, feed-forward layer, residual connections.
struct BlockConfig {
  double expansion = 1;  ///< width of the feed-forward layer / d_model (language-model presets use 4)
  Activation activation = Activation::gelu;
  Norm norm = Norm::layer_norm;
  float norm_eps = 1e-5f;  ///< added to the variance in norms
  bool bias = true;        ///< linear layers have biases; norm_bias is the setting for norms
  bool up_bias = true;     ///< with `bias`: the first feed-forward layer has biases too
  NormBias norm_bias = NormBias::same;
  Residual residual = Residual::sum;
  /// The attention's output is added to its input and normalized before it is added to the stream, to which the input
  /// belongs already (jina-bert-v2's code models). Inference only.
  bool normed_attention = false;
  float dropout = 0.1f;          ///< rate after the attention and after the feed-forward layer, in training
  float activation_dropout = 0;  ///< rate between the two products of the feed-forward layer, in training
};

/// Operations on the input before the first block.
struct EmbeddingConfig {
  /// Language models multiply token embeddings by this (sinusoidal positions: sqrt(d_model), Vaswani section 3.4). A
  /// bare Transformer takes embeddings and does not scale them.
  float scale = 1;
  bool norm = false;       ///< normalize the embeddings after positions are added
  float dropout = 0;       ///< dropout rate after the norm, in training
  int64_t max_length = 0;  ///< learned positions: number of rows of the table
  int token_types = 0;     ///< encoders: number of segments with an embedding each, which is added; 0: none
};

/// Operations after the last block.
struct HeadConfig {
  bool final_norm = false;  ///< normalize the output of the last block
  bool predicts = true;     ///< false: an encoder without an output projection, whose states are the result
  int labels = 0;           ///< encoders: number of outputs of a classifier of the first token; 0: no classifier
  bool tied = true;         ///< language models: the embedding is also the output projection
  bool normalized = false;  ///< language models, untied: the rows of the output projection are scaled to length 1
  double logit_scale = 1;   ///< language models: factor of the logits
};

/// The shape of a transformer, grouped by what the fields configure. The defaults are those of the small PyTorch
/// package that popularised ALiBi. alibi/model_options.h has the fields by name.
struct ALIBI_API TransformerConfig {
  int layers = 6;
  int d_model = 256;
  Position position = Position::alibi;
  AttentionConfig attention = {};
  BlockConfig block = {};
  EmbeddingConfig embedding = {};
  HeadConfig head = {};
  Initialization initialization = Initialization::scaled;

  int head_dim() const { return d_model / attention.heads; }
  int ffn_dim() const { return static_cast<int>(d_model * block.expansion + 0.5); }
  int key_heads() const { return attention.kv_heads > 0 ? attention.kv_heads : attention.heads; }
  /// Throws UsageError that names the field.
  void validate() const;
  /// Number of parameters of the position table (learned positions, T5); 0 for the other methods.
  int64_t position_parameter_count() const;
  /// Number of parameters of the layers, the final norm and the position table.
  int64_t parameter_count() const;
};

/// A trained tensor and, in training, its gradient.
struct Parameter {
  std::string name;
  /// float32. A matrix of a model that was loaded has the data type of its file: it may be bfloat16, float16 or a type
  /// of blocks, and lie in the file, which is mapped into memory and read-only. See LanguageModel::to_float32().
  Tensor value;
  Tensor gradient;          ///< undefined until Transformer::zero_gradients()
  bool decays = false;      ///< weight decay applies (matrices; not norms, biases, position tables)
  Tensor rounded = {};      ///< bfloat16 copy for products in bf16 precision; see Transformer::weights_changed()
  bool is_operand = false;  ///< operand of matrix products, so it has a bfloat16 copy
  double rate_factor = 1;   ///< its learning rate, as a multiple of the optimizer's

  /// The tensor that matrix products use.
  const Tensor& operand() const { return rounded.defined() ? rounded : value; }
};

/// Seed of the random numbers of a training step (dropout). They are a function of these fields, so resuming needs no
/// state.
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
  /// ALiBi's slopes of the heads of each layer, learned or not; empty with other position methods. Separate slopes for
  /// keys after the query follow. Infinity means that the head does not see that direction.
  std::vector<std::vector<float>> slopes() const;

  /// x [batch, length, d_model] -> the same shape. Inference: no dropout, no stored activations, memory O(length).
  Tensor operator()(const Tensor& x) const;

  /// The same in training; stores the activations for backward(). A second call before backward() replaces the first.
  /// The result is float32, or bfloat16 in bf16 precision.
  Tensor forward(const Tensor& x, const StepSeed& seed);
  /// dy [batch, length, d_model], of the type of forward()'s result -> dx, float32, which the next call overwrites.
  /// Adds to the gradients of the parameters.
  Tensor backward(const Tensor& dy);

  /// Precision of training and inference; the default is f32. In bf16 the tolerance of the skip rule is at least 2^-11,
  /// half the rounding of the type.
  void set_precision(Precision precision);
  Precision precision() const;
  /// With recomputation, training stores at most a fifth of the activations and recomputes the rest in the backward
  /// pass, to the same bits, in about a fifth more time.
  void set_recompute(bool recompute);
  /// Updates the bfloat16 copies; call it after you change values of parameters.
  void weights_changed();

  /// All parameters in a fixed order, with their names on disk.
  std::vector<Parameter>& parameters();
  const std::vector<Parameter>& parameters() const;
  /// Allocates missing gradients and sets all to zero. Parameters of other types become float32, as training needs.
  void zero_gradients();
  /// Frees the activations that forward() stored.
  void release_activations();

 private:
  friend class LanguageModel;
  friend struct core::Access;
  struct State;
  /// Without a seed the parameters are undefined until they are loaded.
  ALIBI_HIDDEN Transformer(const TransformerConfig& config, std::optional<uint64_t> seed);
  std::unique_ptr<State> state_;
};

}  // namespace alibi
