#include "text/training_data.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "text/corpus.h"
#include "text/stream.h"
#include "text/word_tokenizer.h"

namespace alibi {
namespace {

TokenStream in_memory(std::vector<int32_t> tokens) {
  const auto owner = std::make_shared<const std::vector<int32_t>>(std::move(tokens));
  return {*owner, owner};
}

std::shared_ptr<const Tokenizer> make_tokenizer(const TokenizerChoice& choice, const std::vector<Document>& documents) {
  if (choice.kind == "byte") return std::make_shared<ByteTokenizer>();
  WordCounter counter;
  for (const Document& document : documents) counter.add(document.text);
  return std::make_shared<WordTokenizer>(counter.vocabulary(choice.vocab_size, choice.min_count));
}

void validate(const TokenizerChoice& choice) {
  const auto& kinds = tokenizer_kinds();
  check_usage(std::find(kinds.begin(), kinds.end(), choice.kind) != kinds.end(),
              "[tokenizer] found the kind '{}', expected {}", choice.kind, fmt::join(kinds, ", "));
  check_usage(choice.kind != "byte" || choice.vocab_size == 0 || choice.vocab_size == ByteTokenizer().vocab_size(),
              "[tokenizer] a vocabulary of {} was asked for; bytes have {}", choice.vocab_size,
              ByteTokenizer().vocab_size());
}

}  // namespace

const std::vector<std::string>& tokenizer_kinds() {
  static const std::vector<std::string> kinds = {"byte", "words"};
  return kinds;
}

TrainingData training_data(const std::vector<std::string>& texts, const std::vector<std::string>& valid,
                           const TokenizerChoice& choice, const TextProgress& progress, std::istream& standard_input) {
  const auto report = [&](std::string_view work, double fraction) {
    if (progress) progress(work, fraction);
  };
  validate(choice);
  report("reading", 0);
  const Corpus corpus = read_corpus(texts, valid, standard_input);
  TrainingData data;
  report("making the tokenizer", 0);
  data.tokenizer = make_tokenizer(choice, corpus.train);
  report("encoding", 0);
  data.train = in_memory(encode_stream(*data.tokenizer, corpus.train));
  data.valid = in_memory(encode_stream(*data.tokenizer, corpus.valid));
  data.train_bytes = corpus.train_bytes;
  data.valid_bytes = corpus.valid_bytes;
  data.split_rule = corpus.split_rule;
  return data;
}

}  // namespace alibi
