#include "model/families/write_back.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

#include "alibi/model_options.h"
#include "core/atomic_update.h"
#include "core/check.h"
#include "core/files.h"
#include "formats/json_copy.h"
#include "formats/options.h"
#include "formats/safetensors.h"
#include "model/check_config.h"
#include "model/own_config.h"
#include "model/own_folder.h"

namespace alibi::model {
namespace {

namespace fs = std::filesystem;

constexpr const char* kChangesKey = "alibi_attention";
constexpr const char* kWrittenFile = "model.safetensors";
constexpr uintmax_t kMaxBytes = uintmax_t{64} << 20;  // of a file that is kept in memory
constexpr const char* kKeptFiles[] = {"tokenizer.json",    "tokenizer.model",    "tokenizer_config.json",
                                      "vocab.json",        "merges.txt",         "special_tokens_map.json",
                                      "vocab.txt",         "spiece.model",       "generation_config.json",
                                      "added_tokens.json", "chat_template.jinja"};

bool is_kept(const fs::path& file) {
  const std::string name = file.filename().string();
  const bool is_named = std::find(std::begin(kKeptFiles), std::end(kKeptFiles), name) != std::end(kKeptFiles);
  return is_named || file.extension() == ".py";
}

DType dtype_of(const std::string& name) {
  return name == "F16" ? DType::float16 : name == "BF16" ? DType::bfloat16 : DType::float32;
}

bool is_exact(const Tensor& value, DType dtype) {
  if (dtype == DType::float32 || dtype == value.dtype()) return true;
  const Tensor wide = value.to(DType::float32), again = wide.to(dtype).to(DType::float32);
  return std::memcmp(wide.raw(), again.raw(), wide.bytes()) == 0;
}

OptionValue option_value(const formats::JsonObject& changes, const ConfigField& field) {
  OptionValue value = field.get(LanguageModelConfig());
  std::visit(
      [&](auto& held) {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::vector<double>>) {
          held.clear();
          for (const formats::Json& number : changes.raw().at(std::string(field.name))) {
            check(number.is_number(), "[config] {}{} has an element that is no number", changes.where(), field.name);
            held.push_back(number.get<double>());
          }
        } else if constexpr (!std::is_same_v<Held, uint64_t>) {
          held = changes.get<Held>(field.name);
        }
      },
      value);
  return value;
}

}  // namespace

FamilyFolder::FamilyFolder(const fs::path& folder, const Layout& layout,
                           std::shared_ptr<const formats::WeightSource> weights, std::vector<Source> sources)
    : layout_(layout),
      weights_(std::move(weights)),
      sources_(std::move(sources)),
      config_(core::read_file(folder / kConfigFile, kMaxConfigBytes)) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (!is_kept(entry->path()) || !entry->is_regular_file(error) || entry->file_size(error) > kMaxBytes) continue;
    files_[entry->path().filename().string()] = core::read_file(entry->path(), kMaxBytes);
  }
  check(!error, "[model] {}: {}", folder.string(), error.message());
}

void FamilyFolder::save(const LanguageModel& model, const fs::path& folder) const {
  std::set<std::string> names = own_file_names();
  for (const auto& [name, content] : files_) names.insert(name);
  const bool as_float32 = !are_exact(model);
  core::update_atomically(folder, names, [&](const fs::path& part) {
    write_weights(model, as_float32, part / kWrittenFile);
    write_config(model, as_float32, part / kConfigFile);
    for (const auto& [name, content] : files_) core::write_file(part / name, content);
  });
}

bool FamilyFolder::are_exact(const LanguageModel& model) const {
  const std::vector<const Parameter*> parameters = model.parameters();
  for (size_t i = 0; i < sources_.size(); ++i) {
    if (sources_[i].arrangement == Arrangement::unit_rows) continue;
    const DType dtype = dtype_of(weights_->info(sources_[i].tensors.front()).dtype);
    if (!is_exact(parameters[i]->value, dtype)) return false;
  }
  return true;
}

void FamilyFolder::write_weights(const LanguageModel& model, bool as_float32, const fs::path& file) const {
  struct Place {
    size_t parameter;
    int64_t row;
  };
  const std::vector<const Parameter*> parameters = model.parameters();
  std::map<std::string, Place, std::less<>> places;
  for (size_t i = 0; i < sources_.size(); ++i) {
    for (int64_t row = 0; const std::string& name : sources_[i].tensors) {
      places[name] = {i, row};
      row += rows_of(sources_[i], weights_->info(name).shape);
    }
  }
  std::vector<formats::StreamedTensor> tensors;
  for (const formats::TensorInfo& info : weights_->tensors()) {
    formats::StreamedTensor& tensor = tensors.emplace_back();
    tensor.name = info.name;
    tensor.dtype = info.dtype;
    tensor.shape = info.shape;
    const auto place = places.find(info.name);
    const bool is_head = place == places.end() && is_tied_head(layout_, info.name);
    const Source* source = is_head                 ? &sources_.front()
                           : place == places.end() ? nullptr
                                                   : &sources_[place->second.parameter];
    // A normalized head cannot be trained, and its rows had other lengths.
    if (source == nullptr || source->arrangement == Arrangement::unit_rows) {
      tensor.bytes = weights_->bytes(info.name);
      continue;
    }
    if (as_float32) tensor.dtype = "F32";
    const Tensor value = parameters[is_head ? 0 : place->second.parameter]->value;
    const int64_t row = is_head ? 0 : place->second.row;
    const DType dtype = dtype_of(tensor.dtype);
    tensor.make = [&model, source, value, row, shape = info.shape, dtype] {
      const Tensor made = stored_tensor(*source, value, row, shape, model.config());
      return made.dtype() == dtype ? made : made.to(dtype);
    };
  }
  formats::write_safetensors(file, tensors);
}

void FamilyFolder::write_config(const LanguageModel& model, bool as_float32, const fs::path& file) const {
  formats::OrderedJson json = formats::OrderedJson::parse(config_);
  formats::keep_numbers(*formats::parse_json_to_copy(config_, file.string()), json);
  if (as_float32) {
    for (const char* key : {"torch_dtype", "dtype"}) {
      if (json.contains(key)) json[key] = "float32";
    }
  }
  const formats::JsonObject read(formats::parse_json(config_, file.string()), file.string() + ": ");
  set_changes(config_of(layout_, read, *weights_), model.config(), json);
  formats::write_json(file, json);
}

void set_changes(const LanguageModelConfig& read, const LanguageModelConfig& now, formats::OrderedJson& json) {
  formats::OrderedJson changes = formats::OrderedJson::object();
  for (const ConfigField& field : config_fields()) {
    const OptionValue value = field.get(now);
    if (value != field.get(read)) changes[std::string(field.name)] = formats::json_of(value);
  }
  json.erase(kChangesKey);
  if (!changes.empty()) json[kChangesKey] = changes;
}

void apply_changes(const formats::JsonObject& file, LanguageModelConfig& config) {
  const formats::JsonObject changes = file.object_or_empty(kChangesKey);
  for (const std::string& name : changes.keys()) {
    const std::span<const ConfigField> fields = config_fields();
    const auto field =
        std::find_if(fields.begin(), fields.end(), [&](const auto& known) { return name == known.name; });
    check(field != fields.end(), "[config] {}{} is no field of a model", changes.where(), name);
    try {
      field->set(config, field->checked(option_value(changes, *field)));
    } catch (const UsageError& error) {  // here it is the file's fault
      fail("[config] {}{}: {}", changes.where(), name, error.what());
    }
  }
  if (changes.keys().empty()) return;
  check_config(config, {[](std::string_view field) { return std::string(field); },
                        [&](const std::string& problem) { fail("[config] {}{}", changes.where(), problem); }});
}

}  // namespace alibi::model
