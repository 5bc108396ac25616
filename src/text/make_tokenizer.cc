#include "text/make_tokenizer.h"

#include <algorithm>
#include <optional>

#include "core/check.h"
#include "core/interrupt.h"
#include "core/random.h"
#include "text/pieces.h"
#include "text/sentencepiece_tokenizer.h"
#include "text/units.h"
#include "text/word_tokenizer.h"

namespace alibi {
namespace {

constexpr int64_t kSentencePieceDefault = 8192;
constexpr int64_t kMaxTokens = int64_t{1} << 20;
/// More text hardly changes the pieces, but learning takes minutes and memory.
constexpr int64_t kLearnFrom = int64_t{1} << 24;

double fraction_of(int64_t part, int64_t all) { return static_cast<double>(part) / static_cast<double>(all); }

std::shared_ptr<const Tokenizer> make_words(const TokenizerChoice& choice, const std::vector<text::Document>& documents,
                                            const TextProgress& progress) {
  text::WordCounter counter;
  const int64_t all = text::bytes_of(documents);
  int64_t done = 0;
  text::for_pieces(
      documents,
      [](std::string_view text) {
        text::WordCounter counted;
        counted.add(text);
        return counted;
      },
      [&](const text::WordCounter& counted, const text::TextPiece& piece) {
        counter.add(counted);
        done += static_cast<int64_t>(piece.text.size());
        if (progress) progress("counting words", fraction_of(done, all));
      });
  return std::make_shared<text::WordTokenizer>(counter.vocabulary(choice.vocab_size, choice.min_count));
}

std::shared_ptr<const Tokenizer> make_sentencepiece(const TokenizerChoice& choice,
                                                    const std::vector<text::Document>& documents,
                                                    const TextProgress& progress) {
  const int64_t all = text::bytes_of(documents);
  const core::Random random(0, 0x70ce);
  const float share = static_cast<float>(std::min(1.0, fraction_of(kLearnFrom, all)));
  size_t document = 0;
  text::OpenText open;
  std::string_view rest;
  int64_t done = 0;
  uint64_t units = 0;
  const auto next = [&]() -> std::optional<std::string_view> {
    for (;;) {
      core::check_interrupt();
      while (rest.empty()) {
        if (document == documents.size()) {
          if (progress) progress("choosing tokens", 0);
          return std::nullopt;
        }
        open = documents[document++].open();
        rest = open.view();
      }
      const std::string_view unit = rest.substr(0, text::unit_length(rest));
      rest.remove_prefix(unit.size());
      done += static_cast<int64_t>(unit.size());
      if (random.uniform(units++) >= share) continue;
      if (progress) progress("reading for the tokenizer", fraction_of(done, all));
      return unit;
    }
  };
  return text::train_sentencepiece({choice.kind, choice.vocab_size == 0 ? kSentencePieceDefault : choice.vocab_size},
                                   next);
}

}  // namespace

const std::vector<std::string>& text::tokenizer_kinds() {
  static const std::vector<std::string> kinds = {"byte", "bpe", "unigram", "words"};
  return kinds;
}

void text::validate(const TokenizerChoice& choice) {
  const auto& kinds = text::tokenizer_kinds();
  check_usage(std::find(kinds.begin(), kinds.end(), choice.kind) != kinds.end(),
              "[tokenizer] found the kind '{}', expected {}", choice.kind, fmt::join(kinds, ", "));
  check_usage(choice.vocab_size >= 0 && (choice.kind == "words" || choice.vocab_size <= kMaxTokens),
              "[tokenizer] the vocabulary size is {}, expected at most {}", choice.vocab_size, kMaxTokens);
  const int64_t bytes = ByteTokenizer().vocab_size();
  check_usage(choice.kind != "byte" || choice.vocab_size == 0 || choice.vocab_size == bytes,
              "[tokenizer] the vocabulary size is {}, expected {} for bytes; choose another tokenizer",
              choice.vocab_size, bytes);
  check_usage(
      choice.like.empty() || (choice.kind == TokenizerChoice().kind && choice.vocab_size == 0),
      "[tokenizer] the tokenizer of {} was selected, and also one of kind '{}' with {} tokens; choose one of them",
      choice.like, choice.kind, choice.vocab_size);
  check_usage(choice.kind == "words" || choice.min_count <= 1,
              "[tokenizer] a minimum word count was given for the tokenizer '{}', expected the tokenizer 'words'",
              choice.kind);
}

std::shared_ptr<const Tokenizer> text::make_tokenizer(const TokenizerChoice& choice,
                                                      const std::vector<text::Document>& documents,
                                                      const TextProgress& progress) {
  text::validate(choice);
  if (!choice.like.empty()) return Tokenizer::load(choice.like);
  if (choice.kind == "byte") return std::make_shared<ByteTokenizer>();
  if (choice.kind == "words") return make_words(choice, documents, progress);
  return make_sentencepiece(choice, documents, progress);
}

std::shared_ptr<const Tokenizer> make_tokenizer(const TokenizerChoice& choice, std::span<const std::string> texts) {
  std::vector<text::Document> documents;
  documents.reserve(texts.size());
  for (const std::string& text : texts) documents.emplace_back("-", "-", text);
  return text::make_tokenizer(choice, documents);
}

}  // namespace alibi
