// Fields of a model's configuration by name: what a user gives in place of a preset's, and what a model has.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "alibi/export.h"
#include "alibi/language_model.h"
#include "alibi/option_value.h"

namespace alibi {

/// Fields that a user gave, by the names of their options; the rest is the preset's, the method's or usual.
class ALIBI_API ModelOptions {
 public:
  /// Throws UsageError for an unknown name, a value of another kind or one out of range.
  ModelOptions& set(std::string_view name, const OptionValue& value);
  void unset(std::string_view name);
  const OptionValue* find(std::string_view name) const;
  bool empty() const { return values_.empty(); }
  void apply_to(LanguageModelConfig& config) const;

 private:
  std::map<std::string, OptionValue, std::less<>> values_;
};

/// Names and values of the fields that a model with its position method has.
ALIBI_API std::vector<std::pair<std::string, OptionValue>> config_values(const LanguageModelConfig& config);

}  // namespace alibi
