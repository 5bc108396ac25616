#include "alibi/tokenizer.h"

#include <algorithm>
#include <iterator>
#include <system_error>

#include "core/atomic_update.h"
#include "core/check.h"
#include "formats/gguf.h"
#include "text/byte_tokenizer.h"
#include "text/gguf_tokenizer.h"
#include "text/pretrained_tokenizer.h"
#include "text/tokenizer_files.h"
#include "text/word_tokenizer.h"

namespace alibi {
namespace {

std::shared_ptr<const Tokenizer> load_file(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  if (name == text::kWordsFile) return text::WordTokenizer::load(file);
  if (file.extension() == ".model") return text::load_sentencepiece(file);
  if (file.extension() == ".gguf") {
    const formats::Gguf gguf(file);
    std::shared_ptr<const Tokenizer> tokenizer = text::tokenizer_from_gguf(gguf.metadata(), file.string());
    check(tokenizer != nullptr, "[tokenizer] {}: the file holds no tokenizer", file.string());
    return tokenizer;
  }
  check(file.extension() == ".json",
        "[tokenizer] {}: expected a tokenizer.json, a model of SentencePiece (*.model), a GGUF file (*.gguf) or {}",
        file.string(), text::kWordsFile);
  return text::load_tokenizer_json(file);
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  std::error_code ignored;  // an inaccessible file counts as missing
  if (std::filesystem::is_regular_file(path, ignored)) return load_file(path);
  return core::read_atomically(
      path, "config.json", [](const std::filesystem::path& folder) { return load_file(text::tokenizer_file(folder)); });
}

Encoding Tokenizer::encode_as(std::string_view first, const std::string_view* second, const EncodeOptions&) const {
  check_usage(!second,
              "[tokenizer] a tokenizer of kind '{}' cannot encode pairs of texts; encode them one after the other",
              kind());
  Encoding encoding = {encode(first), {}};
  encoding.type_ids.resize(encoding.ids.size());
  return encoding;
}

std::vector<int32_t> Tokenizer::encode_prompt(std::string_view text) const {
  std::vector<int32_t> ids = encode(text);
  ids.insert(ids.begin(), end_of_text());
  return ids;
}

std::string Tokenizer::decode_any(std::span<const int32_t> ids, const DecodeOptions* options) const {
  const auto is_known = [size = vocab_size()](int32_t id) {
    check(id >= 0, "[tokenizer] found the id {}, expected at least 0", id);
    return id < size;
  };
  if (std::all_of(ids.begin(), ids.end(), is_known)) return decode_known(ids, options);
  std::vector<int32_t> known;
  std::copy_if(ids.begin(), ids.end(), std::back_inserter(known), is_known);
  return decode_known(known, options);
}

std::set<std::string> text::tokenizer_file_names() {
  return {text::kWordsFile, text::kSentencePieceFile, text::kHuggingFaceFile, text::kTokenizerConfigFile};
}

std::filesystem::path text::tokenizer_file(const std::filesystem::path& folder) {
  std::error_code ignored;  // an inaccessible file counts as missing
  for (const char* name : {text::kSentencePieceFile, text::kWordsFile}) {
    if (std::filesystem::exists(folder / name, ignored)) return folder / name;
  }
  return folder / text::kHuggingFaceFile;
}

std::string text::fingerprint_text(const Tokenizer& tokenizer) {
  return fmt::format("{:016x}", tokenizer.fingerprint());
}

void text::remove_other_tokenizers(const std::filesystem::path& folder, const std::set<std::string>& keep) {
  for (const char* name : {text::kWordsFile, text::kSentencePieceFile, text::kHuggingFaceFile}) {
    if (keep.contains(name)) continue;
    std::error_code error;
    std::filesystem::remove(folder / name, error);
    check(!error, "[tokenizer] {}: {}", (folder / name).string(), error.message());
  }
}

}  // namespace alibi
