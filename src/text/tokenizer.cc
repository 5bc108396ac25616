#include "alibi/tokenizer.h"

#include "core/check.h"
#include "core/together.h"
#include "formats/json.h"
#include "text/byte_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tokenizer_files.h"
#include "text/word_tokenizer.h"

namespace alibi {
namespace {

std::shared_ptr<const Tokenizer> load_byte_tokenizer(const std::filesystem::path& file) {
  const formats::JsonObject json = formats::read_json_object(file);
  check(text::is_byte_tokenizer(json),
        "[tokenizer] {}: found a tokenizer of type {}, expected a byte-level one whose ids are the bytes, without "
        "merges, and with one added token: other kinds cannot be read from this file",
        file.string(), json.has("model") ? json.object("model").get_or<std::string>("type", "?") : "?");
  return std::make_shared<ByteTokenizer>();
}

std::shared_ptr<const Tokenizer> load_from(const std::filesystem::path& folder) {
  const std::filesystem::path file = text::tokenizer_file(folder);
  const std::string name = file.filename().string();
  if (name == text::kSentencePieceFile) return text::SentencePieceTokenizer::load(file);
  if (name == text::kWordsFile) return text::WordTokenizer::load(file);
  return load_byte_tokenizer(file);
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::filesystem::path& folder) {
  return core::read_together(folder, "config.json", load_from);
}

std::set<std::string> text::tokenizer_file_names() {
  return {text::kWordsFile, text::kSentencePieceFile, text::kHuggingFaceFile, text::kTokenizerConfigFile};
}

std::filesystem::path text::tokenizer_file(const std::filesystem::path& folder) {
  std::error_code ignored;  // what cannot be seen is not there
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
