// A GGUF file: a small MPT.
#include <filesystem>

#include "alibi/language_model.h"
#include "formats/gguf.h"
#include "harness.h"
#include "model/families/convert.h"
#include "models.h"
#include "target.h"
#include "temporary_folder.h"
#include "text/gguf_tokenizer.h"

namespace alibi::fuzz {
namespace {

std::string good_file(const char* type, const char* tokenizer_model = "none") {
  const test::TemporaryFolder folder;
  LanguageModelConfig config = preset("tiny");
  config.vocab_size = 7;
  config.transformer.layers = 1;
  config.transformer.d_model = 32;
  config.transformer.attention.heads = 2;
  config.transformer.block.expansion = 1;
  std::shared_ptr<const Tokenizer> tokenizer;
  if (std::string_view(tokenizer_model) == "gpt2") {
    tokenizer = text::tokenizer_from_gguf({.model = "gpt2",
                                           .pre = "gpt-2",
                                           .tokens = {"t", "y", "ty", "<e>"},
                                           .merges = {"t y"},
                                           .types = {1, 1, 1, 3},
                                           .bos = 3,
                                           .eos = 3,
                                           .add_bos = true},
                                          "seed");
  } else if (std::string_view(tokenizer_model) == "t5") {
    tokenizer = text::tokenizer_from_gguf({.model = "t5",
                                           .tokens = {"<u>", "</s>", "t", "\xe2\x96\x81y"},
                                           .scores = {0, 0, -1, -2},
                                           .types = {2, 3, 1, 1},
                                           .eos = 1,
                                           .unknown = 0},
                                          "seed");
  }
  model::write_gguf(LanguageModel(config, 1, tokenizer), folder / "m.gguf", type);
  return files_of(folder.path()).at("m.gguf");
}

/// What is read must also compute.
void load(const std::filesystem::path& file) {
  const LanguageModel model = LanguageModel::load(file);
  if (model.has_tokenizer()) demand(!model.tokenizer().encode_prompt("ty y t").empty(), "prompt");
  if (model.config().vocab_size < 3) return;
  const std::vector<int32_t> ids = {1, 2};
  demand(model.logits(Tensor::from(ids, {1, 2})).elements() == 2 * int64_t{model.config().vocab_size}, "logits");
}

bool run(std::string_view input) {
  static const test::TemporaryFolder folder;
  const std::filesystem::path file = folder / "m.gguf";
  write_file(file, input);
  return takes(input, file, [&] { load(file); });
}

std::vector<Seed> seeds() {
  return {{"f32", good_file("f32")},
          {"f16", good_file("f16")},
          {"q8_0", good_file("q8_0")},
          {"gpt2", good_file("q8_0", "gpt2")},
          {"t5", good_file("q8_0", "t5")}};
}

/// A flipped, raised or overwritten number somewhere in the header, whose lengths stay where they are.
std::string mutate(std::string_view input, unsigned seed) {
  std::string changed(input);
  if (changed.size() < 32) return changed;
  const size_t at = 4 + seed * size_t{2654435761} % std::min<size_t>(changed.size() - 12, 2000);
  const unsigned kind = seed % 4;
  if (kind == 0) changed[at] = static_cast<char>(changed[at] ^ (1 << (seed / 4 % 8)));
  if (kind == 1) changed[at] = static_cast<char>(changed[at] + 1);
  if (kind == 2) changed[at] = '\xff';
  if (kind == 3) changed.resize(changed.size() - seed % 32);
  return changed;
}

}  // namespace

Target gguf() { return {"gguf", run, seeds, mutate}; }

}  // namespace alibi::fuzz
