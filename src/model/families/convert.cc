#include "model/families/convert.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/files.h"
#include "formats/gguf_writer.h"
#include "formats/json.h"
#include "formats/weight_types.h"
#include "model/families/family.h"
#include "model/own_config.h"
#include "nn/weights.h"
#include "text/tokenizer_files.h"

namespace alibi::model {
namespace {

/// GGUF's numbers of the types of tokens.
constexpr int32_t kNormalToken = 1, kControlToken = 3, kUserToken = 4, kUnusedToken = 5;

void refuse_differences(const std::vector<std::string>& differences, const char* format) {
  check_usage(differences.empty(), "[convert] {} cannot express: {}", format, fmt::join(differences, ", "));
}

/// The same tokenizer as a tokenizer.json of Hugging Face's library.
formats::JsonObject as_tokenizer_json(const Tokenizer& tokenizer) {
  std::string name = (std::filesystem::temp_directory_path() / "alibi-convert-XXXXXX").string();
  check(::mkdtemp(name.data()) != nullptr, "[convert] cannot make a folder in {}",
        std::filesystem::temp_directory_path().string());
  const std::filesystem::path folder = name, file = folder / text::kHuggingFaceFile;
  formats::Json json;
  try {
    tokenizer.save(folder);
    if (core::path_exists(file)) json = *formats::parse_json(core::read_file(file), file.string());
  } catch (...) {
    std::filesystem::remove_all(folder);
    throw;
  }
  std::filesystem::remove_all(folder);
  check_usage(!json.is_null(), "[convert] GGUF files that this library writes cannot hold a tokenizer of the kind {}",
              tokenizer.kind());
  return {std::move(json), "tokenizer.json: "};
}

/// llama.cpp's name of the expression of a byte-level BPE. Throws for other tokenizers.
std::string_view pre_tokenizer_of(const formats::JsonObject& json) {
  const formats::JsonObject pre = json.object_or_empty("pre_tokenizer");
  const bool is_byte_level = json.object("model").get_or("type", "") == "BPE" && pre.get_or("type", "") == "ByteLevel";
  const std::string normalizer = json.object_or_empty("normalizer").get_or("type", "none");
  check_usage(
      is_byte_level && (normalizer == "none" || normalizer == "NFC"),
      "[convert] GGUF files that this library writes hold byte-level BPE with the normalizer NFC or none, not {} "
      "with {}",
      pre.get_or("type", "another tokenizer"), normalizer);
  return normalizer == "NFC" ? "mpt" : "gpt-2";
}

void write_tokenizer(const Tokenizer& tokenizer, int vocab_size, formats::GgufWriter& file) {
  const formats::JsonObject json = as_tokenizer_json(tokenizer);
  file.text("tokenizer.ggml.model", "gpt2");
  file.text("tokenizer.ggml.pre", pre_tokenizer_of(json));
  std::vector<std::string> tokens;
  for (int id = 0; id < vocab_size; ++id) tokens.push_back(fmt::format("[PAD{}]", id));
  std::vector<int32_t> types(tokens.size(), kUnusedToken);
  const auto set = [&](int64_t id, const std::string& token, int32_t type) {
    check(id >= 0 && id < vocab_size, "[convert] the token '{}' has the id {}, expected one below {}", token, id,
          vocab_size);
    tokens[static_cast<size_t>(id)] = token;
    types[static_cast<size_t>(id)] = type;
  };
  for (const auto& [token, id] : json.object("model").raw().at("vocab").items()) set(id, token, kNormalToken);
  for (const formats::Json& added : json.raw().value("added_tokens", formats::Json::array())) {
    set(added.at("id"), added.at("content"), added.value("special", false) ? kControlToken : kUserToken);
  }
  std::vector<std::string> merges;
  for (const formats::Json& merge : json.object("model").raw().at("merges")) {
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : fmt::format("{} {}", merge.at(0).get<std::string>(), merge.at(1).get<std::string>()));
  }
  // llama.cpp needs at least one merge. This one joins characters that byte-level tokens never contain.
  if (merges.empty()) merges.emplace_back("\u4e00 \u4e01");
  file.texts("tokenizer.ggml.tokens", tokens);
  file.integers("tokenizer.ggml.token_type", types);
  file.texts("tokenizer.ggml.merges", merges);
  for (const char* key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"}) {
    file.integer(key, static_cast<uint32_t>(tokenizer.end_of_text()));
  }
  file.boolean("tokenizer.ggml.add_bos_token", true);
}

const Family& written_family() {
  for (const Family* family : families()) {
    if (family->gguf.write != nullptr) return *family;
  }
  fail("[convert] no family is written as GGUF");
}

}  // namespace

void write_for_transformers(const LanguageModel& model, const std::filesystem::path& folder) {
  refuse_differences(differences_from_mpt(model.config()), "the MPT of transformers");
  model.save(folder);
}

void write_gguf(const LanguageModel& model, const std::filesystem::path& path, std::string_view type_name) {
  const Layout& layout = written_family().gguf;
  refuse_differences(layout.differences(model.config()), "a GGUF file of MPT");
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
    const Tensor value = nn::widened(parameter->value.to(Device::cpu));
    // Vectors stay float32, as in llama.cpp. Rows that do not fill whole blocks become float16.
    const bool is_matrix = value.axes() == 2;
    const std::string_view of_rows = value.size(-1) % block == 0 ? std::string_view(type) : "F16";
    file.tensor(tensor_name(layout, parameter->name), value, is_matrix ? of_rows : "F32");
  }
  file.write(path);
}

}  // namespace alibi::model
