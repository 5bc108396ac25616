// Reads the configuration of another program's model. It records the key of each of our fields, so that error messages
// name that key.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "alibi/language_model.h"
#include "formats/json.h"

namespace alibi::model {

class ConfigReader {
 public:
  /// Keeps a reference.
  explicit ConfigReader(const formats::JsonObject& file) : file_(file) {}

  using Keys = std::initializer_list<std::string_view>;

  /// The integer under the first of these keys that exists, in the range of the field. Throws Error if none exists.
  int integer(std::string_view field, Keys keys);
  /// The sizes of a model, from these keys and "vocab_size".
  void sizes(LanguageModelConfig& config, Keys layers, Keys d_model, Keys heads, std::string_view kv_heads = {});
  /// The sizes that the metadata of a GGUF file says.
  void gguf_sizes(LanguageModelConfig& config, const std::string& architecture, std::string_view kv_heads = {});
  /// The width of the feed-forward layer, divided by d_model.
  double expansion(std::string_view key, int d_model) const;
  /// A number above `above`.
  double number(std::string_view field, std::string_view key, double above = -std::numeric_limits<double>::infinity());
  double number_or(std::string_view field, std::string_view key, double fallback,
                   double above = -std::numeric_limits<double>::infinity());
  /// The factor of the logits: a number, or MPT's word for 1 / sqrt(d_model).
  double logit_scale(int d_model);
  /// Rotary positions in the keys of transformers: the base and, with "linear", what positions are divided by.
  struct Rotation {
    double theta;
    double factor = 1;
  };
  Rotation rotation(double default_theta);
  /// A rate of dropout; 0 if it is missing.
  float rate(std::string_view field, std::string_view key);

  /// Throws Error with the feature that the key stands for, unless the key is missing or has this value.
  void refuse_unless(std::string_view key, const formats::Json& expected, std::string_view meaning) const;
  /// Throws Error unless the key exists and is true.
  void require(std::string_view key, std::string_view meaning) const;
  /// Throws Error: "KEY is VALUE, expected EXPECTED".
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;

  const formats::JsonObject& file() const { return file_; }
  /// Records the key of a field that was read in another way.
  void found(std::string_view field, std::string_view key) { names_[std::string(field)] = key; }
  /// Checks and returns the configuration.
  LanguageModelConfig checked(const LanguageModelConfig& config) const;

 private:
  std::string_view first_of(Keys keys) const;
  void transformer_sizes(TransformerConfig& t, Keys layers, Keys d_model, Keys heads, std::string_view kv_heads);

  const formats::JsonObject& file_;
  std::map<std::string, std::string, std::less<>> names_;  // our field -> the key that it was read from
};

}  // namespace alibi::model
