// Families of models that other programs write: how their configuration is converted, and which tensors each parameter
// is made of. A family is one file in this folder, its declaration below and one line in families.cc. No other code
// knows a family's name.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/language_model.h"
#include "formats/gguf_writer.h"
#include "formats/json.h"
#include "formats/weight_source.h"
#include "model/parameters.h"

namespace alibi::model {

/// The layout of a tensor in a file, compared with the parameter that it is part of.
enum class Arrangement : uint8_t {
  plain,
  transposed,         ///< [in, out], as in GPT-2's layers; biases are plain
  heads_interleaved,  ///< query, key and value of the first head, then those of the second, ...
  halves_swapped,     ///< the second half of the rows before the first one: a gate that is stored after the values
  unit_rows,          ///< plain, but each row is divided by its norm: a normalized output matrix
};

/// The tensors that a parameter is made of. "#" stands for the number of a block, "#-1" for the number of the block
/// before, which is the last block for parameters outside of the blocks. Names that end in .weight and .bias are given
/// without these endings. A parameter may have several mappings: the first one whose tensors all exist is used,
/// otherwise the last one. A mapping for the parameter of one block, such as "blocks.0.norm_1", replaces those for all
/// blocks.
struct Mapping {
  std::string_view parameter;               ///< ours: "blocks.#.attn.Wqkv"
  std::array<std::string_view, 3> tensors;  ///< names in the file, stacked by rows; empty: no further tensor
  Arrangement arrangement = Arrangement::plain;
};

/// One kind of file that a family uses.
struct Layout {
  std::array<std::string_view, 3> names = {};  ///< model_type of config.json, or general.architecture of a GGUF file
  /// What the file says: config.json, or the metadata of a GGUF file. Throws Error that names what is not supported.
  LanguageModelConfig (*config)(const formats::JsonObject& file, const formats::WeightSource& weights) = nullptr;
  std::span<const Mapping> mappings = {};
  std::string_view tied_head = {};  ///< the head's tensor, which may repeat the embedding where both are tied
  /// Tensors that have no place and do no harm, by the same patterns; "x.*" stands for all names that begin with "x.".
  std::array<std::string_view, 3> ignored = {};
  /// Of the tensors' names: that of the names here, and others that a file may have in its place. A file may also leave
  /// it out altogether.
  std::array<std::string_view, 2> prefixes = {};
  /// How texts are read, if that is not the usual way; may be null.
  Interpolation (*interpolation)(const formats::JsonObject& file) = nullptr;
  /// Our own models as files of this kind: what these cannot say of a model. Null: none are written.
  std::vector<std::string> (*differences)(const LanguageModelConfig& config) = nullptr;
  /// The keys of config.json, for a model without differences.
  void (*describe)(const LanguageModelConfig& config, formats::OrderedJson& json) = nullptr;
  /// The tensors have the names of our own folders, which such keys make folders of this family too.
  bool is_own = false;
  /// The metadata of a GGUF file.
  void (*write)(const LanguageModelConfig& config, formats::GgufWriter& file) = nullptr;
};

/// Constants without destructors, because models may be loaded while main() returns.
struct Family {
  std::string_view name;
  Layout folder;
  Layout gguf = {};  ///< without names, the family is not read from GGUF files
};

// Each is defined in its own file.
extern const Family kMpt, kBloom, kFalcon, kBaichuan, kJais, kRefact, kReplit, kBert, kForgetting, kJais2, kGte;
extern const Mapping kBloomTensors[10];  // also the names in Falcon's files
extern const Mapping kGgufTensors[12];   // llama.cpp's names for MPT and BLOOM

/// What BERT's relatives share: norms after the residual connections, GEGLU, no next token.
LanguageModelConfig post_norm_encoder();
/// The number of rows of a tensor, under its name with or without BERT's prefix; 0 if there is none.
int rows_of_tensor(const formats::WeightSource& weights, const std::string& name);

std::span<const Family* const> families();
/// Throws Error that lists the families if none matches the configuration or the metadata.
const Family& family_of_folder(const formats::JsonObject& config);
const Family& family_of_gguf(const formats::JsonObject& metadata);

/// The configuration that a file describes. A head that differs from the embedding is kept although the file says that
/// both are one, as transformers does; `warnings` then says so.
LanguageModelConfig config_of(const Layout& layout, const formats::JsonObject& file,
                              const formats::WeightSource& weights, std::vector<std::string>* warnings = nullptr);

/// A parameter and the tensors that it is made of.
struct Source {
  std::vector<std::string> tensors;
  Arrangement arrangement = Arrangement::plain;
};

bool is_transposed(const Source& source, const Shape& shape);
/// The rows of a parameter that are in a tensor of its source.
int64_t rows_of(const Source& source, const Shape& tensor);

/// The source of each parameter. Throws Error that names the tensor if one is missing, has another shape, or does not
/// belong to such a model. Does not allocate the parameters.
std::vector<Source> sources_of(const Layout& layout, const formats::WeightSource& weights,
                               const LanguageModelConfig& config, const std::vector<ParameterSpec>& specs);
/// The names of the plain tensors that a parameter is made of in a file that is written. Throws Error if there are
/// none.
std::vector<std::string> tensor_names(const Layout& layout, const std::string& parameter);
/// Whether the tensor repeats the embedding of a tied model.
bool is_tied_head(const Layout& layout, const std::string& tensor);
/// Returns a tensor of a source, of the shape `shape`, from the value of the parameter: the inverse of
/// load_parameter(). `begin` is the row of the parameter at which the tensor begins.
Tensor stored_tensor(const Source& source, const Tensor& value, int64_t begin, const Shape& shape,
                     const LanguageModelConfig& config);
/// The data type that a parameter has in memory: that of its tensors for a matrix, else float32.
DType type_of_parameter(const Source& source, const ParameterSpec& spec, const formats::WeightSource& weights);
/// A parameter: a view of the mapped file where its arrangement and its place in the file allow it, else a copy. Throws
/// Error that names the tensor and the place of a number that is not finite. Matrices that are views of files of
/// together more than a GiB are not searched for such numbers, because that would read all of them.
Tensor load_parameter(const Source& source, const ParameterSpec& spec, const formats::WeightSource& weights,
                      const LanguageModelConfig& config);

}  // namespace alibi::model
