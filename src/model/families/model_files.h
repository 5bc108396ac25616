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
#include "model/origin.h"

namespace alibi::model {

struct ModelFiles {
  LanguageModelConfig config;
  std::string family;
  bool is_own = false;                   ///< our own layout
  std::string opened_as;                 ///< for our own layout: the family that other programs run it as, or empty
  std::vector<std::string> differences;  ///< for our own layout: why other programs cannot run it
  std::vector<std::string> notes;        ///< notes for users about how the weights are read
  Interpolation interpolation;           ///< the interpolation that the model's files ask for
  std::shared_ptr<const formats::WeightSource> weights;
  std::vector<Source> sources;                 ///< one for each parameter
  std::shared_ptr<const Tokenizer> tokenizer;  ///< null if the files contain none

  /// Throws Error if the configuration or the tokenizer is invalid, or if a tensor is missing, has another shape or
  /// does not belong to the model.
  explicit ModelFiles(const std::filesystem::path& path);

  /// Writes the model back in the format of its family; null for our own folders and for GGUF files.
  std::shared_ptr<const Origin> origin() const;
  /// Loads the parameters of a model of this configuration. Each is converted to its final place.
  void load(const std::vector<Parameter*>& parameters) const;
  /// See LanguageModel::slopes(). Reads trained slopes only, and no other weights.
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
