// Tokenizers of every kind with what their own libraries make of texts. They lie beside the project on some machines.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "alibi/tokenizer.h"
#include "core/files.h"
#include "formats/json.h"
#include "shared_data.h"

namespace alibi::text::tokenizers {
namespace {

using formats::Json;
using Ids = std::vector<int32_t>;

std::filesystem::path fixtures() { return test::shared_data() / ".." / "fixtures" / "tokenizers"; }

void check_folder(const std::filesystem::path& folder) {
  const Json file = Json::parse(core::read_file(folder / "cases.json"));
  const auto tokenizer = Tokenizer::load(folder);
  EXPECT_EQ(tokenizer->vocab_size(), file["vocab_size"]);
  for (const Json& one : file["cases"]) {
    const std::string text = one["text"];
    SCOPED_TRACE(folder.filename().string() + ": " + one["text"].dump(-1, ' ', true));
    const Ids ids = one["ids"];
    const std::string decoded = one.value("decoded", text);
    EXPECT_EQ(tokenizer->encode(text, {.add_special_tokens = false}), ids);
    EXPECT_EQ(tokenizer->encode(text, EncodeOptions()), one.value("ids_with_special", ids));
    EXPECT_EQ(tokenizer->decode(ids, {.skip_special_tokens = false}), decoded);
    EXPECT_EQ(tokenizer->decode(ids, DecodeOptions()), one.value("decoded_skip_special", decoded));
    const Ids plain = tokenizer->encode(text);
    EXPECT_EQ(std::count(plain.begin(), plain.end(), tokenizer->end_of_text()), 0);
  }
  for (const Json& pair : file.value("pairs", Json::array())) {
    const Encoding encoding = tokenizer->encode_pair(pair["text"].get<std::string>(), pair["pair"].get<std::string>());
    EXPECT_EQ(encoding.ids, pair["ids"].get<Ids>()) << folder << pair;
    EXPECT_EQ(encoding.type_ids, pair["type_ids"].get<Ids>()) << folder << pair;
  }
}

TEST(TokenizerFixtures, GiveTheIdsAndTextsOfTheirLibraries) {
  if (!std::filesystem::exists(fixtures())) GTEST_SKIP() << "there is no " << fixtures();
  int folders = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fixtures())) {
    check_folder(entry.path());
    ++folders;
  }
  EXPECT_GE(folders, 12);
}

}  // namespace
}  // namespace alibi::text::tokenizers
