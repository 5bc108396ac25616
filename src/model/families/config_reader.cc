#include "model/families/config_reader.h"

#include <cmath>

#include "core/check.h"
#include "model/check_config.h"
#include "model/config_fields.h"

namespace alibi::model {
namespace {

const formats::OptionRange& range_of_field(std::string_view field) {
  for (const ConfigField& candidate : config_fields()) {
    if (candidate.name == field) return candidate.range;
  }
  fail("[config] there is no field called {}", field);
}

}  // namespace

std::string_view ConfigReader::first_of(Keys keys) const {
  for (const std::string_view key : keys) {
    if (file_.has(key)) return key;
  }
  fail("[config] {}{} is missing", file_.where(), fmt::join(keys, " or "));
}

int ConfigReader::integer(std::string_view field, Keys keys) {
  const std::string_view key = first_of(keys);
  found(field, key);
  const int64_t most = static_cast<int64_t>(range_of_field(field).most.value_or(0x1p30));
  return static_cast<int>(file_.get_int(key, 1, most));
}

void ConfigReader::transformer_sizes(TransformerConfig& t, Keys layers, Keys d_model, Keys heads,
                                     std::string_view kv_heads) {
  t.layers = integer("layers", layers);
  t.d_model = integer("d_model", d_model);
  t.attention.heads = integer("heads", heads);
  if (!kv_heads.empty() && file_.has(kv_heads)) t.attention.kv_heads = integer("kv_heads", {kv_heads});
}

void ConfigReader::sizes(LanguageModelConfig& config, Keys layers, Keys d_model, Keys heads,
                         std::string_view kv_heads) {
  transformer_sizes(config.transformer, layers, d_model, heads, kv_heads);
  config.vocab_size = integer("vocab_size", {"vocab_size"});
}

void ConfigReader::gguf_sizes(LanguageModelConfig& config, const std::string& architecture, std::string_view kv_heads) {
  transformer_sizes(config.transformer, {architecture + ".block_count"}, {architecture + ".embedding_length"},
                    {architecture + ".attention.head_count"}, kv_heads);
  config.train_length = file_.get_int_or(architecture + ".context_length", 0, 0, int64_t{1} << 40);
}

double ConfigReader::expansion(std::string_view key, int d_model) const {
  return static_cast<double>(file_.get_int(key, 1, int64_t{64} * d_model)) / d_model;
}

double ConfigReader::number(std::string_view field, std::string_view key, double above) {
  found(field, file_.where() + std::string(key));
  const auto value = file_.get<double>(key);
  check(value > above && value <= 1e6, "[config] {}{} is {}, expected a number above {}, at most 1e6", file_.where(),
        key, value, above);
  return value;
}

double ConfigReader::number_or(std::string_view field, std::string_view key, double fallback, double above) {
  return file_.has(key) ? number(field, key, above) : fallback;
}

double ConfigReader::logit_scale(int d_model) {
  constexpr const char* key = "logit_scale";
  constexpr const char* inverse_root = "inv_sqrt_d_model";
  if (!file_.has(key) || !file_.raw().at(key).is_string()) return number_or(key, key, 1, 0);
  if (file_.get<std::string>(key) != inverse_root) refuse(key, fmt::format("a number or {}", inverse_root));
  return 1 / std::sqrt(static_cast<double>(d_model));
}

ConfigReader::Rotation ConfigReader::rotation(double default_theta) {
  // Older files have the base beside the scaling, newer ones in one object.
  refuse_unless("rope_scaling", nullptr, "a scaling of the rotation");
  const formats::JsonObject newer = file_.object_or_empty("rope_parameters");
  ConfigReader in_newer(newer);
  in_newer.refuse_unless("partial_rotary_factor", 1.0, "a rotation of a part of head_dim");
  const bool is_linear = newer.get_or("rope_type", "default") == "linear";
  if (!is_linear) in_newer.refuse_unless("rope_type", "default", "a scaling other than linear");
  ConfigReader& of_base = newer.has("rope_theta") ? in_newer : *this;
  return {of_base.number_or("rotary_theta", "rope_theta", default_theta, 0),
          is_linear ? in_newer.number("interpolation", "factor", 0) : 1};
}

float ConfigReader::rate(std::string_view field, std::string_view key) {
  found(field, key);
  return static_cast<float>(file_.get_number_or(key, 0, 0, 1));
}

void ConfigReader::refuse(std::string_view key, std::string_view expected) const {
  const formats::Json value = file_.has(key) ? file_.raw().at(std::string(key)) : formats::Json();
  fail("[config] {}{} is {}, expected {}", file_.where(), key, value.is_null() ? "missing" : formats::shown(value),
       expected);
}

void ConfigReader::refuse_unless(std::string_view key, const formats::Json& expected, std::string_view meaning) const {
  if (!file_.has(key) || file_.raw().at(std::string(key)) == expected) return;
  refuse(key, fmt::format("{}: {} is not supported", formats::shown(expected), meaning));
}

void ConfigReader::require(std::string_view key, std::string_view meaning) const {
  if (!file_.get_or<bool>(key, false)) refuse(key, fmt::format("true: {}", meaning));
}

LanguageModelConfig ConfigReader::checked(const LanguageModelConfig& config) const {
  check_config(config, {[&](std::string_view field) {
                          const auto name = names_.find(field);
                          return name == names_.end() ? std::string(field) : name->second;
                        },
                        [&](const std::string& problem) { fail("[config] {}{}", file_.where(), problem); }});
  return config;
}

}  // namespace alibi::model
