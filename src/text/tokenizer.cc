#include "alibi/tokenizer.h"

#include "core/check.h"
#include "formats/json.h"
#include "text/byte_tokenizer.h"

namespace alibi {

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "tokenizer.json";
  const JsonObject json = read_json_object(file);
  check(is_byte_tokenizer(json),
        "[tokenizer] {}: found a tokenizer of type {}, expected a byte-level one whose ids are the bytes, without "
        "merges, and with one added token: other kinds cannot be read yet",
        file.string(), json.has("model") ? json.object("model").get_or<std::string>("type", "?") : "?");
  return std::make_shared<ByteTokenizer>();
}

}  // namespace alibi
