// A model on disk, in any layout: our own folders, folders of other programs' families, GGUF files. Opening reads
// headers and configuration; no memory is taken for parameters.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "alibi/language_model.h"
#include "formats/weight_source.h"
#include "model/families/family.h"

namespace alibi::model {

struct ModelFiles {
  LanguageModelConfig config;
  std::string family;
  bool is_own = false;                   ///< our own layout
  std::vector<std::string> differences;  ///< our own layout: why other programs do not run it as an MPT
  std::vector<std::string> notes;        ///< what a user should know of how the weights are read
  Interpolation interpolation;           ///< how the model is meant to be read
  std::unique_ptr<formats::WeightSource> weights;
  std::vector<Source> sources;                 ///< of each parameter
  std::shared_ptr<const Tokenizer> tokenizer;  ///< null: the files of another program's model hold none

  /// Throws Error if something does not fit: the configuration; a tensor that is missing, has another shape or no
  /// place; the tokenizer.
  explicit ModelFiles(const std::filesystem::path& path);

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
};

/// The files of a path at one moment: again if a folder changed meanwhile.
ModelFiles open_model(const std::filesystem::path& path);
/// Its configuration alone.
LanguageModelConfig read_model_config(const std::filesystem::path& path);

}  // namespace alibi::model
