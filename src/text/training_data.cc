#include "alibi/training_data.h"

#include <algorithm>
#include <iostream>
#include <optional>
#include <utility>

#include "core/check.h"
#include "text/corpus.h"
#include "text/data_folder.h"
#include "text/make_tokenizer.h"
#include "text/stream.h"
#include "text/text_sketch.h"

namespace alibi {
namespace {

/// Assigns tokens to documents: encode_stream() passes a document in one or more pieces, and never two documents in one
/// piece.
class PartCounter {
 public:
  explicit PartCounter(const std::vector<text::Document>& documents) {
    for (const text::Document& document : documents) parts_.push_back({document.name, document.size(), 0});
  }
  void add(int64_t bytes, size_t tokens) {
    while (at_ + 1 < parts_.size() && bytes_ >= parts_[at_].bytes) {
      bytes_ = 0;
      ++at_;
    }
    bytes_ += bytes;
    parts_[at_].tokens += static_cast<int64_t>(tokens);
  }
  std::vector<TextPart> parts() && { return std::move(parts_); }

 private:
  std::vector<TextPart> parts_;
  size_t at_ = 0;
  int64_t bytes_ = 0;  // bytes of the current part
};

/// Encodes documents in memory. `done` of `all` bytes have been encoded before; progress continues from there.
TokenStream encode_into_memory(const Tokenizer& tokenizer, const std::vector<text::Document>& documents, int64_t& done,
                               int64_t all, const TextProgress& progress, PartCounter* parts = nullptr) {
  const auto tokens = std::make_shared<std::vector<int32_t>>();
  text::encode_stream(tokenizer, documents, [&](std::span<const int32_t> ids, int64_t bytes) {
    tokens->insert(tokens->end(), ids.begin(), ids.end());
    if (parts) parts->add(bytes, ids.size());
    done += bytes;
    if (progress) progress("tokenize", static_cast<double>(done) / static_cast<double>(all));
  });
  return {*tokens, tokens};
}

/// Whether the inputs are one data folder. Throws UsageError if a data folder is combined with other inputs.
bool is_data(const std::vector<std::string>& inputs) {
  const bool any = std::any_of(inputs.begin(), inputs.end(),
                               [](const std::string& input) { return input != "-" && text::is_data_folder(input); });
  check_usage(!any || inputs.size() == 1, "[text] a folder of tokens cannot be combined with other text: {}",
              fmt::join(inputs, ", "));
  return any;
}

ScoredText encoded(const Tokenizer& tokenizer, const std::vector<text::Document>& documents, FilesRead files,
                   const TextProgress& progress) {
  ScoredText text;
  text.files = std::move(files);
  text.bytes = text::bytes_of(documents);
  int64_t done = 0;
  text.stream = encode_into_memory(tokenizer, documents, done, text.bytes, progress);
  return text;
}

}  // namespace

TrainingData training_data(const std::vector<std::string>& texts, const std::vector<std::string>& valid,
                           const TokenizerChoice& choice, const TextProgress& progress, const std::string& field) {
  text::validate(choice);
  if (is_data(texts)) {
    const std::string& folder = texts.front();
    check_usage(valid.empty(), "[text] {}: what is held out was chosen when it was tokenized; leave out --valid",
                folder);
    TrainingData data = text::check_data_folder(folder, progress);
    const bool asked = choice.kind != TokenizerChoice().kind || choice.vocab_size != 0 || !choice.like.empty();
    check_usage(!asked, "[text] {}: it has its own tokenizer ({}, {} tokens); leave out the tokenizer's options",
                folder, data.tokenizer->kind(), data.tokenizer->vocab_size());
    return data;
  }
  if (progress) progress("read", 0);
  const text::Corpus corpus = text::read_corpus(texts, valid, std::cin, field);
  TrainingData data;
  data.tokenizer = text::make_tokenizer(choice, corpus.train, progress);
  const int64_t all = corpus.train_bytes + corpus.valid_bytes;
  int64_t done = 0;
  data.train = encode_into_memory(*data.tokenizer, corpus.train, done, all, progress);
  PartCounter parts(corpus.valid);
  data.valid = encode_into_memory(*data.tokenizer, corpus.valid, done, all, progress, &parts);
  data.valid_parts = std::move(parts).parts();
  data.train_bytes = corpus.train_bytes;
  data.valid_bytes = corpus.valid_bytes;
  data.train_files = static_cast<int64_t>(corpus.train.size());
  data.valid_files = static_cast<int64_t>(corpus.valid.size());
  data.split_rule = corpus.split_rule;
  data.files = corpus.files;
  return data;
}

std::string held_out_warning(const TrainingData& data) {
  constexpr double kPartToWarnOf = 0.25;  // files of one collection share licences and headings
  const text::TextSketch sketch = text::sketch_of(data.valid.tokens);
  const std::optional<double> part = text::part_found(sketch, data.train.tokens);
  if (!part || *part < kPartToWarnOf) return "";
  return fmt::format(
      "{:.0f} % of the held-out text is in the training text too, word for word (passages of {} tokens), so its loss "
      "says little about new text; leave that text out of one of them",
      100 * *part, text::kPassage);
}

ScoredText text_to_score(const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                         const TextProgress& progress, const std::string& field) {
  if (is_data(texts)) {
    const TrainingData data = text::check_data_folder(texts.front(), progress, text::DataPart::valid);
    check(data.tokenizer->fingerprint() == tokenizer.fingerprint(),
          "[text] {}: its tokens are of another tokenizer ({}, {} tokens) than the model's ({}, {} tokens)",
          texts.front(), data.tokenizer->kind(), data.tokenizer->vocab_size(), tokenizer.kind(),
          tokenizer.vocab_size());
    return {data.valid, data.valid_bytes, {}};
  }
  FilesRead files;
  const std::vector<text::Document> documents = text::read_documents(texts, std::cin, field, &files);
  return encoded(tokenizer, documents, std::move(files), progress);
}

ScoredText held_out_text(const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                         const std::vector<std::string>& valid, const TextProgress& progress,
                         const std::string& field) {
  if (is_data(texts)) return text_to_score(tokenizer, texts, progress);
  const text::Corpus corpus = text::read_corpus(texts, valid, std::cin, field);
  return encoded(tokenizer, corpus.valid, corpus.files, progress);
}

}  // namespace alibi
