#include "alibi/tokenizer.h"

#include "core/check.h"
#include "core/files.h"
#include "formats/json.h"
#include "text/byte_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/tokenizer_files.h"
#include "text/word_tokenizer.h"

namespace alibi {
namespace {

std::shared_ptr<const Tokenizer> load_byte_tokenizer(const std::filesystem::path& file) {
  const JsonObject json = read_json_object(file);
  check(is_byte_tokenizer(json),
        "[tokenizer] {}: found a tokenizer of type {}, expected a byte-level one whose ids are the bytes, without "
        "merges, and with one added token: other kinds cannot be read from this file",
        file.string(), json.has("model") ? json.object("model").get_or<std::string>("type", "?") : "?");
  return std::make_shared<ByteTokenizer>();
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::filesystem::path& folder) {
  std::error_code ignored;  // what cannot be seen is not there
  const auto holds = [&](const char* name) { return std::filesystem::exists(folder / name, ignored); };
  if (holds(kSentencePieceFile)) {
    const std::filesystem::path file = folder / kSentencePieceFile;
    return std::make_shared<SentencePieceTokenizer>(read_file(file, kMostTokenizerBytes), file.string());
  }
  if (holds(kWordsFile)) return WordTokenizer::load(folder / kWordsFile);
  return load_byte_tokenizer(folder / kHuggingFaceFile);
}

void remove_other_tokenizers(const std::filesystem::path& folder, const std::set<std::string>& keep) {
  for (const char* name : {kWordsFile, kSentencePieceFile, kHuggingFaceFile}) {
    if (keep.contains(name)) continue;
    std::error_code error;
    std::filesystem::remove(folder / name, error);
    check(!error, "[tokenizer] {}: {}", (folder / name).string(), error.message());
  }
}

}  // namespace alibi
