// A model on disk in any layout: our own folders, folders of other programs' families, or GGUF files. Opening it reads
// headers and the configuration. No memory is allocated for parameters.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "alibi/language_model.h"
#include "formats/weight_source.h"
#include "model/families/family.h"
#include "model/original_format.h"

namespace alibi::model {

struct ModelFiles {
  LanguageModelConfig config;
  std::string family;
  bool is_own = false;                   ///< our own layout
  std::string opened_as;                 ///< our own layout: the family as which other programs run it; empty: none
  std::vector<std::string> differences;  ///< our own layout: why they do not
  std::vector<std::string> notes;        ///< how the weights are read, where that is not as the file has them
  std::vector<std::string> warnings;     ///< where the file contradicts itself
  Interpolation interpolation;           ///< how the model is meant to be read
  std::shared_ptr<const formats::WeightSource> weights;
  std::vector<Source> sources;                 ///< of each parameter
  std::shared_ptr<const Tokenizer> tokenizer;  ///< null: the files hold none

  /// Throws Error if the configuration or the tokenizer is invalid, or if a tensor is missing, has another shape or
  /// does not belong to the model.
  explicit ModelFiles(const std::filesystem::path& path);

  /// Writes the model back in the format of its family; null for our own folders and for GGUF files.
  std::shared_ptr<const OriginalFormat> origin() const;
  /// Sets the values of the parameters of a model of this configuration.
  void load(const std::vector<Parameter*>& parameters) const;
  /// The data type that each parameter has after load().
  std::vector<DType> types() const;
  /// As LanguageModel::slopes(). Reads those that were learned, and no other weights.
  std::vector<std::vector<float>> slopes() const;

 private:
  void open_folder(const std::filesystem::path& folder);
  void open_gguf(const std::filesystem::path& file);
  void take(const Family& family, const Layout& layout, const formats::JsonObject& description);

  std::filesystem::path folder_;  // of another program
  const Layout* layout_ = nullptr;
};

/// Opens the files of a path at one moment. Repeats this if a folder changed meanwhile.
ModelFiles open_model(const std::filesystem::path& path);
/// Reads the configuration only.
LanguageModelConfig read_model_config(const std::filesystem::path& path);

}  // namespace alibi::model
