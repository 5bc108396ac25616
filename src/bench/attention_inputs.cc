#include "bench/attention_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "core/format.h"
#include "core/random.h"
#include "formats/safetensors.h"
#include "model/pass.h"
#include "nn/elementwise.h"

namespace alibi::bench {
namespace {

constexpr int t5_buckets = 32;
constexpr std::pair<const char*, float AttentionOptions::*> numbers[] = {
    {"softmax_scale", &AttentionOptions::softmax_scale}, {"softcap", &AttentionOptions::softcap}};
/// Biases that are a formula of the distance, with r1 = 1 and r2 = 1/2, the means of a new model's.
const std::map<std::string, float (*)(float), std::less<>> formulas = {
    {"kerple", [](float distance) { return -std::log1p(distance / 2); }},
    {"power", [](float distance) { return -std::sqrt(distance); }}};

std::string layer_name(size_t layer, std::string_view what) { return fmt::format("layers.{}.{}", layer, what); }

Tensor as_tensor(const std::vector<float>& values) {
  return Tensor::from(std::span<const float>(values), {static_cast<int64_t>(values.size())});
}

AttentionOptions attention_options(const AttentionShape& shape, int64_t length, uint64_t seed) {
  AttentionOptions options;
  if (shape.position == Position::alibi) options.alibi_slopes = slopes(static_cast<int>(shape.heads));
  if (shape.position == position_from("gates")) {
    const std::vector<float> steps = slopes(static_cast<int>(shape.heads));
    options.log_decay = normal_tensor({1, length, shape.heads}, seed, 3);
    float* gate = options.log_decay->data<float>();
    for (int64_t i = 0; i < length * shape.heads; ++i) {  // the mean of |N(0, 1)| is sqrt(2 / pi)
      gate[i] = -steps[static_cast<size_t>(i % shape.heads)] * std::abs(gate[i]) * 1.2533141f;
    }
  }
  if (shape.position == Position::t5) {
    options.buckets = BucketedBias{normal_tensor({t5_buckets, shape.heads}, seed, 3)};
  }
  if (const auto formula = formulas.find(name_of(shape.position)); formula != formulas.end()) {
    options.bias_by_distance = Tensor::empty({length, shape.heads});
    float* row = options.bias_by_distance->data<float>();
    for (int64_t distance = 0; distance < length; ++distance, row += shape.heads) {
      std::fill_n(row, shape.heads, formula->second(static_cast<float>(distance)));
    }
  }
  return options;
}

}  // namespace

AttentionInputs AttentionInputs::first(int64_t rows) const {
  AttentionInputs part = *this;
  for (Tensor* tensor : {&part.q, &part.k, &part.v}) *tensor = tensor->slice(1, 0, rows);
  if (part.options.log_decay) part.options.log_decay = part.options.log_decay->slice(1, 0, rows);
  return part;
}

AttentionInputs AttentionInputs::head(int64_t head) const {
  const int64_t kv_head = head / (q.size(2) / k.size(2));
  AttentionInputs part = {q.slice(2, head, head + 1), k.slice(2, kv_head, kv_head + 1),
                          v.slice(2, kv_head, kv_head + 1), options};
  for (std::vector<float>* of_heads :
       {&part.options.alibi_slopes, &part.options.alibi_slopes_after, &part.options.sinks}) {
    if (!of_heads->empty()) *of_heads = {(*of_heads)[static_cast<size_t>(head)]};
  }
  const auto of_head = [head](const Tensor& table) { return table.slice(1, head, head + 1).clone(); };
  if (options.buckets) part.options.buckets->table = of_head(options.buckets->table);
  if (options.bias_by_distance) part.options.bias_by_distance = of_head(*options.bias_by_distance);
  if (options.log_decay) part.options.log_decay = options.log_decay->slice(2, head, head + 1);
  return part;
}

AttentionInputs AttentionInputs::to(DType dtype) const {
  if (q.dtype() == dtype) return *this;
  return {q.to(dtype), k.to(dtype), v.to(dtype), options};
}

std::vector<std::string> measured_positions() { return {"alibi", "gates", "kerple", "power", "t5", "none"}; }

void AttentionShape::validate() const {
  check_usage(heads >= 1 && key_heads() >= 1 && heads % key_heads() == 0,
              "[--kv-heads] found {} for {} heads, expected a divisor of the number of heads", key_heads(), heads);
  const std::vector<std::string> measured = measured_positions();
  check_usage(std::find(measured.begin(), measured.end(), name_of(position)) != measured.end(),
              "[--position] found {}, expected {}", name_of(position), fmt::join(measured, ", "));
}

Tensor normal_tensor(const Shape& shape, uint64_t seed, uint64_t stream) {
  Tensor tensor = Tensor::empty(shape);
  nn::fill_normal(core::Random(seed, stream), 1, tensor);
  return tensor;
}

AttentionInputs random_inputs(const AttentionShape& shape, int64_t length, uint64_t seed) {
  return {normal_tensor({1, length, shape.heads, shape.head_dim}, seed, 0),
          normal_tensor({1, length, shape.key_heads(), shape.head_dim}, seed, 1),
          normal_tensor({1, length, shape.key_heads(), shape.head_dim}, seed, 2),
          attention_options(shape, length, seed)};
}

std::vector<AttentionInputs> capture(const LanguageModel& model, const std::vector<int32_t>& tokens) {
  std::vector<AttentionInputs> layers;
  alibi::model::Pass pass;
  pass.on_attention = [&](const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
    layers.push_back({q.clone(), k.clone(), v.clone(), options});
  };
  model::hidden(model, Tensor::from(std::span<const int32_t>(tokens), {1, static_cast<int64_t>(tokens.size())}), pass);
  return layers;
}

void save_inputs(const std::filesystem::path& file, const std::vector<AttentionInputs>& layers,
                 const std::map<std::string, std::string>& about) {
  std::vector<formats::NamedTensor> tensors;
  std::map<std::string, std::string> metadata = about;
  metadata["format"] = "pt";
  for (size_t i = 0; i < layers.size(); ++i) {
    const AttentionInputs& layer = layers[i];
    tensors.push_back({layer_name(i, "q"), layer.q.clone()});
    tensors.push_back({layer_name(i, "k"), layer.k.clone()});
    tensors.push_back({layer_name(i, "v"), layer.v.clone()});
    if (layer.options.log_decay) tensors.push_back({layer_name(i, "log_decay"), layer.options.log_decay->clone()});
    if (!layer.options.sinks.empty()) tensors.push_back({layer_name(i, "sinks"), as_tensor(layer.options.sinks)});
    for (const auto& [name, field] : numbers) metadata[layer_name(i, name)] = fmt::format("{}", layer.options.*field);
    metadata[layer_name(i, "sliding_window")] = fmt::format("{}", layer.options.sliding_window);
  }
  // All layers share the bias by distance.
  const AttentionOptions& options = layers.front().options;
  metadata["causal"] = options.causal ? "true" : "false";
  if (!options.alibi_slopes.empty()) tensors.push_back({"slopes", as_tensor(options.alibi_slopes)});
  if (!options.alibi_slopes_after.empty()) tensors.push_back({"slopes_after", as_tensor(options.alibi_slopes_after)});
  if (options.buckets) {
    tensors.push_back({"t5_table", options.buckets->table.clone()});
    metadata["t5_max_distance"] = fmt::format("{}", options.buckets->max_distance);
  }
  if (options.bias_by_distance) tensors.push_back({"bias_by_distance", options.bias_by_distance->clone()});
  formats::write_safetensors(file, tensors, metadata);
}

std::vector<AttentionInputs> load_inputs(const std::filesystem::path& file) {
  const formats::Safetensors saved(file);
  const auto metadata = [&](const std::string& key) {
    const auto at = saved.metadata().find(key);
    return at == saved.metadata().end() ? std::string() : at->second;
  };
  AttentionOptions options;
  options.causal = metadata("causal") != "false";
  if (saved.contains("slopes")) options.alibi_slopes = saved.load("slopes").to_floats();
  if (saved.contains("slopes_after")) options.alibi_slopes_after = saved.load("slopes_after").to_floats();
  if (saved.contains("t5_table")) {
    const int distance = std::atoi(metadata("t5_max_distance").c_str());
    check(distance > 0, "[bench attention] {}: t5_max_distance is '{}', expected a whole number above 0", file.string(),
          metadata("t5_max_distance"));
    options.buckets = BucketedBias{saved.load("t5_table"), distance};
  }
  if (saved.contains("bias_by_distance")) options.bias_by_distance = saved.load("bias_by_distance");
  std::vector<AttentionInputs> layers;
  while (saved.contains(layer_name(layers.size(), "q"))) {
    const size_t i = layers.size();
    AttentionInputs layer = {saved.load(layer_name(i, "q")), saved.load(layer_name(i, "k")),
                             saved.load(layer_name(i, "v")), options};
    if (saved.contains(layer_name(i, "log_decay"))) layer.options.log_decay = saved.load(layer_name(i, "log_decay"));
    if (saved.contains(layer_name(i, "sinks"))) layer.options.sinks = saved.load(layer_name(i, "sinks")).to_floats();
    const auto number = [&](const std::string& name, auto& value) {
      const std::string text = metadata(layer_name(i, name));
      check(text.empty() || core::parse_number(text, value), "[bench attention] {}: {} is '{}', expected a number",
            file.string(), layer_name(i, name), text);
    };
    for (const auto& [name, field] : numbers) number(name, layer.options.*field);
    number("sliding_window", layer.options.sliding_window);
    check(layer.q.axes() == 4 && layer.q.size(0) == 1 && layer.q.elements() > 0,
          "[bench attention] {}: {} has shape {}, expected [1, length, heads, head_dim]", file.string(),
          layer_name(i, "q"), to_string(layer.q.shape()));
    layers.push_back(std::move(layer));
  }
  check(!layers.empty(),
        "[bench attention] {}: the tensor layers.0.q is missing; write the file with 'alibi bench capture'",
        file.string());
  for (const AttentionInputs& layer : layers) {
    check(layer.q.shape() == layers.front().q.shape() && layer.k.shape() == layers.front().k.shape(),
          "[bench attention] {}: the layers have different shapes, expected equal ones", file.string());
  }
  return layers;
}

}  // namespace alibi::bench
