#include "model/families/convert.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <vector>

#include "core/atomic_update.h"
#include "core/check.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/safetensors.h"
#include "formats/weight_types.h"
#include "model/families/family.h"
#include "model/families/model_files.h"
#include "model/families/own_as_family.h"
#include "model/families/write_back.h"
#include "model/own_folder.h"
#include "nn/weights.h"
#include "text/gguf_tokenizer.h"

namespace alibi::model {
namespace {

constexpr const char* kFileTypeKey = "general.file_type";

void refuse_differences(const std::vector<std::string>& differences, const std::string& format) {
  check_usage(differences.empty(), "[convert] {} cannot express: {}", format, fmt::join(differences, ", "));
}

void write_tokenizer(const Tokenizer& tokenizer, int vocab_size, formats::GgufWriter& file) {
  const text::GgufVocabulary vocabulary = text::gguf_vocabulary_of(tokenizer, vocab_size);
  file.text("tokenizer.ggml.model", vocabulary.model);
  file.text("tokenizer.ggml.pre", vocabulary.pre);
  file.texts("tokenizer.ggml.tokens", vocabulary.tokens);
  file.integers("tokenizer.ggml.token_type", vocabulary.types);
  if (!vocabulary.merges.empty()) file.texts("tokenizer.ggml.merges", vocabulary.merges);
  if (!vocabulary.scores.empty()) {
    file.numbers("tokenizer.ggml.scores", vocabulary.scores);
    file.boolean("tokenizer.ggml.add_space_prefix", vocabulary.add_space_prefix);
    file.boolean("tokenizer.ggml.remove_extra_whitespaces", vocabulary.remove_extra_whitespaces);
  }
  if (!vocabulary.precompiled_charsmap.empty()) {
    file.bytes("tokenizer.ggml.precompiled_charsmap", vocabulary.precompiled_charsmap);
  }
  for (const auto& [key, id] : {std::pair("tokenizer.ggml.bos_token_id", vocabulary.bos),
                                {"tokenizer.ggml.eos_token_id", vocabulary.eos},
                                {"tokenizer.ggml.unknown_token_id", vocabulary.unknown}}) {
    if (id >= 0) file.integer(key, static_cast<uint32_t>(id));
  }
  file.boolean("tokenizer.ggml.add_bos_token", vocabulary.add_bos);
  file.boolean("tokenizer.ggml.add_eos_token", vocabulary.add_eos);
}

/// Writes a model without differences. Tensors keep their types, except quantized ones.
void write_as_family(const LanguageModel& model, const Layout& layout, const std::filesystem::path& folder) {
  const TransformerConfig& t = model.config().transformer;
  const int64_t queries = t.d_model, keys = int64_t{t.key_heads()} * t.head_dim();
  core::update_atomically(folder, own_file_names(), [&](const std::filesystem::path& part) {
    std::vector<formats::NamedTensor> tensors;
    for (const Parameter* parameter : model.parameters()) {
      const Tensor value = numbers_in(parameter->value.dtype()) > 1 ? nn::widened(parameter->value) : parameter->value;
      const std::vector<std::string> names = tensor_names(layout, parameter->name);
      const auto count = static_cast<int64_t>(names.size());
      for (int64_t begin = 0; const std::string& name : names) {
        // Three parts are queries, keys and values; two are gate and values.
        const int64_t rows = count < 3 ? value.size(0) / count : begin == 0 ? queries : keys;
        tensors.push_back({name, value.slice(0, begin, begin + rows)});
        begin += rows;
      }
    }
    formats::write_safetensors(part / "model.safetensors", tensors);
    formats::OrderedJson json;
    layout.describe(model.config(), json);
    const formats::JsonObject described(formats::Json::parse(json.dump()), "");
    set_changes(config_of(layout, described, formats::Safetensors(part)), model.config(), json);
    if (model.has_tokenizer()) {
      set_special_tokens(model.tokenizer(), json);
      model.tokenizer().save(part);
    }
    formats::write_json(part / kConfigFile, json);
  });
}

const Family& written_family() {
  for (const Family* family : families()) {
    if (family->gguf.write != nullptr) return *family;
  }
  fail("[convert] no family is written as GGUF");
}

/// A type of the tensors of a file, with its number in general.file_type.
struct FileType {
  std::string_view name;
  uint32_t id;
};

FileType file_type(std::string_view asked) {
  std::string name(asked);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  constexpr FileType types[] = {{"F32", 0}, {"F16", 1}, {"Q4_0", 2}, {"Q8_0", 7}, {"Q4_K", 14}, {"BF16", 32}};
  const auto* type = std::find_if(std::begin(types), std::end(types), [&](const auto& t) { return t.name == name; });
  check_usage(type != std::end(types), "[convert] the type is {}, expected f32, f16, bf16, q8_0, q4_0 or q4_k", asked);
  return *type;
}

/// The type of a tensor. As in llama.cpp's files, vectors and the embeddings of token types stay float32.
std::string_view type_of_tensor(const std::string& name, const Shape& shape, const FileType& asked,
                                std::vector<OtherType>& others) {
  if (shape.size() != 2 || name.starts_with("token_types")) return "F32";
  if (shape.back() % formats::weight_type(asked.name)->block_elements == 0) return asked.name;
  others.push_back({name, "f16"});
  return "F16";
}

}  // namespace

void write_for_transformers(const LanguageModel& model, const std::filesystem::path& folder) {
  std::vector<std::string> problems;
  for (const Family* family : families()) {
    if (family->folder.describe == nullptr) continue;
    const std::vector<std::string> differences = family->folder.differences(model.config());
    if (differences.empty()) {
      return family->folder.is_own ? save_own(model, folder) : write_as_family(model, family->folder, folder);
    }
    problems.push_back(
        fmt::format("transformers' model {} cannot express: {}", family->name, fmt::join(differences, ", ")));
  }
  fail_usage("[convert] {}", fmt::join(problems, "; "));
}

void write_own(const LanguageModel& model, const std::filesystem::path& folder) {
  const Interpolation& interpolation = model.interpolation();
  check_usage(!interpolation.dynamic && interpolation.factor == 1,
              "[convert] alibi's own layout cannot express: the interpolation of positions");
  save_own(model, folder);
}

std::vector<OtherType> write_gguf(const LanguageModel& model, const std::filesystem::path& path,
                                  std::string_view type_name) {
  const Family& family = written_family();
  const Layout& layout = family.gguf;
  refuse_differences(layout.differences(model.config()), fmt::format("a GGUF file of {}", family.name));
  const FileType type = file_type(type_name);
  formats::GgufWriter file;
  layout.write(model.config(), file);
  file.integer(kFileTypeKey, type.id);
  if (model.has_tokenizer()) write_tokenizer(model.tokenizer(), model.config().vocab_size, file);
  std::vector<OtherType> others;
  for (const Parameter* parameter : model.parameters()) {
    const std::string name = tensor_names(layout, parameter->name).front();
    const Shape shape = nn::shape_of_weights(parameter->value);
    file.tensor(name, shape, type_of_tensor(name, shape, type, others),
                [value = parameter->value] { return nn::widened(value); });
  }
  file.write(path);
  return others;
}

std::vector<OtherType> rewrite_gguf(const std::filesystem::path& from, const std::filesystem::path& path,
                                    std::string_view type_name) {
  const FileType type = file_type(type_name);
  const ModelFiles files(from);  // throws Error if this is no model
  const auto* gguf = dynamic_cast<const formats::Gguf*>(files.weights.get());
  check_usage(gguf != nullptr, "[convert] {}: not a GGUF file", from.string());
  formats::GgufWriter file;
  for (const formats::GgufHeader::Key& key : gguf->keys()) {
    // The writer has the usual alignment and writes one file.
    const bool is_other = key.name == "general.alignment" || key.name == kFileTypeKey || key.name.starts_with("split.");
    if (!is_other) file.raw(key.name, key.bytes);
  }
  file.integer(kFileTypeKey, type.id);
  std::vector<OtherType> others;
  for (const formats::TensorInfo& tensor : gguf->tensors()) {
    const std::string_view to = type_of_tensor(tensor.name, tensor.shape, type, others);
    if (tensor.dtype == to) {
      file.tensor(tensor.name, tensor.shape, to, gguf->bytes(tensor.name));
    } else {
      file.tensor(tensor.name, tensor.shape, to, [gguf, &tensor] {
        Tensor values = Tensor::empty(tensor.shape);
        gguf->load_into(tensor.name, values);
        return values;
      });
    }
  }
  file.write(path);
  return others;
}

}  // namespace alibi::model
