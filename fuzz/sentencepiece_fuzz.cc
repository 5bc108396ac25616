// tokenizer.model: a whole file, or what follows a good one, which in protocol buffers adds to it or changes it.
#include <iterator>
#include <random>

#include "harness.h"
#include "target.h"
#include "temporary_folder.h"
#include "tokenizers.h"

namespace alibi::fuzz {
namespace {

/// U+2581, a space in a piece.
constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

enum Kind : unsigned { whole, after_bpe, after_unigram, kinds };

bool run(std::string_view input) {
  static const test::TemporaryFolder folder;
  static const std::string bpe = sentencepiece_model(true), unigram = sentencepiece_model(false);
  const Choice choice = choose(input, kinds);
  std::string model = choice.kind == after_bpe ? bpe : choice.kind == after_unigram ? unigram : "";
  write_file(folder / "tokenizer.model", model.append(choice.content));
  const std::string text = "the caf\xc3\xa9 \xff\n</s>" + std::string(choice.content.substr(0, 512));
  return takes(input, folder.path(), [&] { use_tokenizer(folder.path(), text); });
}

/// One piece more, of the letters of texts and the names of other pieces.
std::string mutate(std::string_view input, unsigned seed) {
  constexpr std::string_view parts[] = {"<",  "/", "s", ">",   "</s>", "<unk>", "<0x", "4", "1",        "<0x41>",
                                        "th", "e", "c", "caf", " ",    "\n",    "\0",  "a", kSpaceMark, "\xc3\xa9"};
  constexpr float scores[] = {0, -1, 1, 3e38f, -3e38f, 1e-40f};
  std::minstd_rand random(seed);
  std::string text;
  for (auto count = random() % 4; count > 0; --count) text += parts[random() % std::size(parts)];
  const float score = scores[random() % std::size(scores)];
  return std::string(input) + sentencepiece_piece(text, score, random() % 3 == 0 ? random() % 8 : 1);
}

std::vector<Seed> seeds() {
  const std::string pieces = sentencepiece_piece("</", -9, 1) + sentencepiece_piece("s>", -9, 1);
  return {{"bpe", chosen(whole, sentencepiece_model(true))},
          {"unigram", chosen(whole, sentencepiece_model(false))},
          {"more_of_bpe", chosen(after_bpe, pieces)},
          {"more_of_unigram", chosen(after_unigram, pieces)}};
}

}  // namespace

Target sentencepiece() { return {"sentencepiece", run, seeds, mutate}; }

}  // namespace alibi::fuzz
