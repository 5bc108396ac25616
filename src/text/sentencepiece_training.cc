#include <sentencepiece_trainer.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/check.h"
#include "text/sentencepiece_tokenizer.h"

namespace alibi {
namespace {

/// U+2585: the library leaves lines with it out.
constexpr const char* kReserved = "\xe2\x96\x85";

/// The units, each without its line feed, as the library asks for them.
class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::function<std::optional<std::string_view>()>& next) : next_(next) { Next(); }

  bool done() const override { return done_; }
  void Next() override {
    const std::optional<std::string_view> unit = next_();
    done_ = !unit.has_value();
    if (done_) return;
    sentence_ = *unit;
    if (sentence_.ends_with('\n')) sentence_.pop_back();
    usable_ |= !sentence_.empty() && sentence_.find(kReserved) == std::string::npos;
  }
  /// Whether there was any text to learn from.
  bool usable() const { return usable_; }
  const std::string& value() const override { return sentence_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::function<std::optional<std::string_view>()>& next_;
  std::string sentence_;
  bool done_ = false, usable_ = false;
};

/// The least vocabulary, if that is what the library misses: "... is smaller than required_chars. 200 vs 317. ...".
std::optional<int64_t> least_vocabulary(const std::string& message) {
  const size_t found = message.find("smaller than required_chars");
  const size_t least = found == std::string::npos ? found : message.find(" vs ", found);
  if (least == std::string::npos) return std::nullopt;
  return std::strtoll(message.c_str() + least + 4, nullptr, 10);
}

}  // namespace

std::shared_ptr<const SentencePieceTokenizer> train_sentencepiece(
    const SentencePieceTraining& training, const std::function<std::optional<std::string_view>()>& next) {
  Sentences sentences(next);
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", training.kind},
      {"vocab_size", std::to_string(training.vocab_size)},
      {"hard_vocab_limit", "false"},  // a small text has fewer pieces
      {"byte_fallback", "true"},
      {"character_coverage", "0.9995"},
      // Text stays as it is.
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"allow_whitespace_only_pieces", "true"},  // indentation
      {"unk_id", "0"},
      {"eos_id", "1"},
      {"bos_id", "-1"},
      {"pad_id", "-1"},
      {"max_sentence_length", std::to_string(1 << 20)},  // longer ones would be left out; units are shorter
      {"num_threads", "4"},                              // sums depend on it, so it must not follow the machine
      {"minloglevel", "2"},
  };
  std::string model;
  const sentencepiece::util::Status status = sentencepiece::SentencePieceTrainer::Train(settings, &sentences, &model);
  check(sentences.usable(), "[tokenizer] there is no line of text from which {} tokens could be learned",
        training.kind);
  const std::optional<int64_t> least = status.ok() ? std::nullopt : least_vocabulary(status.ToString());
  check_usage(!least,
              "[tokenizer] the vocabulary size is {}, expected at least {}: the bytes and the characters of this text",
              training.vocab_size, least.value_or(0));
  check(status.ok(), "[tokenizer] SentencePiece cannot make a {} tokenizer of {} tokens from this text: {}",
        training.kind, training.vocab_size, status.ToString());
  return std::make_shared<const SentencePieceTokenizer>(std::move(model), training.kind);
}

}  // namespace alibi
