// Where a model comes from that another program wrote: it is written back as that program has it.
#pragma once

#include <filesystem>

#include "alibi/language_model.h"

namespace alibi::model {

class OriginalFormat {
 public:
  virtual ~OriginalFormat() = default;
  /// Writes the model, whose weights may have changed, into a folder; LanguageModel::save() calls it.
  virtual void save(const LanguageModel& model, const std::filesystem::path& folder) const = 0;
};

}  // namespace alibi::model
