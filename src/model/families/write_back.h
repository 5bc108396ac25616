// A model of another program, written back as its family has it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "formats/json.h"
#include "formats/weight_source.h"
#include "model/families/family.h"
#include "model/original_format.h"

namespace alibi::model {

/// The folder that a model was read from. Its weights stay mapped, and its small files in memory.
class FamilyFolder final : public OriginalFormat {
 public:
  FamilyFolder(const std::filesystem::path& folder, const Layout& layout,
               std::shared_ptr<const formats::WeightSource> weights, std::vector<Source> sources);
  void save(const LanguageModel& model, const std::filesystem::path& folder) const override;

 private:
  /// Whether the data types of the file hold the parameters of the model.
  bool are_exact(const LanguageModel& model) const;
  void write_weights(const LanguageModel& model, bool as_float32, const std::filesystem::path& file) const;
  void write_config(const LanguageModel& model, bool as_float32, const std::filesystem::path& file) const;

  const Layout& layout_;
  std::shared_ptr<const formats::WeightSource> weights_;
  std::vector<Source> sources_;
  std::string config_;                        // the text of config.json
  std::map<std::string, std::string> files_;  // the tokenizer's, and code that the model comes with
};

/// Fields that were changed here, such as the training length, stand under a key of ours in the family's config.json.
/// `read` is the configuration that the file describes without them.
void set_changes(const LanguageModelConfig& read, const LanguageModelConfig& now, formats::OrderedJson& json);
void apply_changes(const formats::JsonObject& file, LanguageModelConfig& config);

}  // namespace alibi::model
