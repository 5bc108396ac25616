// The fields of a model's configuration, each described once in config_fields.cc.
#pragma once

#include <optional>
#include <span>

#include "alibi/language_model.h"
#include "formats/option.h"

namespace alibi {

namespace model {

/// What is said of a field of a model's configuration beyond what is said of every option.
struct ConfigFieldMore {
  const char* method = nullptr;               ///< the only position method that has it; null: every model
  const char* json = nullptr;                 ///< its place in config.json: "attn_config.alibi_bias_max"
  bool json_by_hand = false;                  ///< the file says it in another way, which src/model/own_config.cc knows
  bool always_written = false;                ///< to config.json, also where reading it would give the same without
  bool required = false;                      ///< every file says it
  std::optional<OptionValue> if_absent = {};  ///< what a file means that does not say it, where that is not the default
  bool training_only = false;                 ///< a trained model computes the same whatever it is
  bool offered = false;                       ///< users choose it: on the command line, in Python, in ModelOptions
};

/// A field of LanguageModelConfig or of its TransformerConfig. Its value here is a bool, an int64_t, a double, a list
/// of numbers or the name of a choice. Validation, config.json, the identity of a run, options of the command, keywords
/// of Python, `alibi info`, the settings of a report and the table in docs/reference/training.md come from this.
struct ConfigField : formats::Option<LanguageModelConfig> {
  ConfigFieldMore more;

  bool belongs_to(const Position& position) const {
    return !more.method || more.method == position.input || more.method == position.rotation ||
           more.method == position.bias;
  }
  /// The value as set() takes it: a whole number stands for a number. Throws UsageError for one of another kind or out
  /// of range.
  OptionValue checked(const OptionValue& value) const;
};

std::span<const ConfigField> config_fields();

/// Those that users choose.
struct OfferedFields {
  static const ConfigField* begin();
  static const ConfigField* end();
};

}  // namespace model

template <>
inline constexpr model::OfferedFields formats::options_of<LanguageModelConfig>{};

}  // namespace alibi
