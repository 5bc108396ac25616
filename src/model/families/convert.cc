#include "model/families/convert.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>
#include <vector>

#include "core/check.h"
#include "formats/gguf_writer.h"
#include "formats/weight_types.h"
#include "model/families/family.h"
#include "model/families/own_as_family.h"
#include "text/gguf_tokenizer.h"

namespace alibi::model {
namespace {

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

const Family& written_family() {
  for (const Family* family : families()) {
    if (family->gguf.write != nullptr) return *family;
  }
  fail("[convert] no family is written as GGUF");
}

}  // namespace

void write_for_transformers(const LanguageModel& model, const std::filesystem::path& folder) {
  const Family& family = family_of_own();
  refuse_differences(family.folder.differences(model.config()), fmt::format("transformers' model {}", family.name));
  save_own(model, folder);
}

void write_gguf(const LanguageModel& model, const std::filesystem::path& path, std::string_view type_name) {
  const Family& family = written_family();
  const Layout& layout = family.gguf;
  refuse_differences(layout.differences(model.config()), fmt::format("a GGUF file of {}", family.name));
  std::string type(type_name);
  std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::toupper(c); });
  constexpr std::pair<std::string_view, uint32_t> file_types[] = {{"F32", 0}, {"F16", 1}, {"Q8_0", 7}, {"BF16", 32}};
  const auto* file_type = std::find_if(std::begin(file_types), std::end(file_types),
                                       [&](const auto& known) { return known.first == type; });
  check_usage(file_type != std::end(file_types), "[convert] the type is {}, expected f32, f16, bf16 or q8_0",
              type_name);
  formats::GgufWriter file;
  layout.write(model.config(), file);
  file.integer("general.file_type", file_type->second);
  if (model.has_tokenizer()) write_tokenizer(model.tokenizer(), model.config().vocab_size, file);
  const int block = formats::weight_type(type)->block_elements;
  for (const Parameter* parameter : model.parameters()) {
    const Tensor value = parameter->value.to(Device::cpu);
    // Vectors stay float32, as in llama.cpp. Rows that do not fill whole blocks become float16.
    const bool is_matrix = value.axes() == 2;
    const std::string_view of_rows = value.size(-1) % block == 0 ? std::string_view(type) : "F16";
    file.tensor(tensor_name(layout, parameter->name), value, is_matrix ? of_rows : "F32");
  }
  file.write(path);
}

}  // namespace alibi::model
