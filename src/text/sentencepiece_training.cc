#include <sentencepiece_trainer.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/check.h"
#include "core/child_process.h"
#include "text/sentencepiece_tokenizer.h"

namespace alibi::text {
namespace {

/// U+2585: the library ignores lines that contain it.
constexpr const char* kReserved = "\xe2\x96\x85";

// First byte of the child's answers.
constexpr char kModel = 'm', kRefusal = 'r', kNothing = '0';

/// Iterates over the units from the parent, each without its line feed.
class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const core::Channel& parent) : parent_(parent) { Next(); }

  bool done() const override { return done_; }
  void Next() override {
    if (begin_ == units_.size()) {
      units_ = parent_.receive().value_or("");
      begin_ = 0;
      done_ = units_.empty();
      if (done_) return;
    }
    const size_t size = unit_size(std::string_view(units_).substr(begin_));
    sentence_.assign(units_, begin_ + sizeof size, size);
    begin_ += sizeof size + size;
    if (sentence_.ends_with('\n')) sentence_.pop_back();
    usable_ |= !sentence_.empty() && sentence_.find(kReserved) == std::string::npos;
  }
  /// Whether there was any text to learn from.
  bool usable() const { return usable_; }
  const std::string& value() const override { return sentence_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  static size_t unit_size(std::string_view from) {
    size_t size = 0;
    std::memcpy(&size, from.data(), sizeof size);
    return size;
  }

  const core::Channel& parent_;
  std::string units_;  // each preceded by its size
  size_t begin_ = 0;   // start of the units that were not returned yet
  std::string sentence_;
  bool done_ = false, usable_ = false;
};

/// Sends all units in batches, then an empty message. Returns early if the child has ended.
void send_units(const core::Channel& child, const std::function<std::optional<std::string_view>()>& next) {
  constexpr size_t together = size_t{1} << 16;
  std::string units;
  while (const std::optional<std::string_view> unit = next()) {
    const size_t size = unit->size();
    units.append(reinterpret_cast<const char*>(&size), sizeof size);
    units += *unit;
    if (units.size() < together) continue;
    if (!child.send(units)) return;
    units.clear();
  }
  if (!units.empty() && !child.send(units)) return;
  child.send("");
}

/// The minimum vocabulary size, if the library's error states it: "... is smaller than required_chars. 200 vs 317.
/// ...".
std::optional<int64_t> min_vocabulary(const std::string& message) {
  const size_t found = message.find("smaller than required_chars");
  const size_t least = found == std::string::npos ? found : message.find(" vs ", found);
  if (least == std::string::npos) return std::nullopt;
  return std::strtoll(message.c_str() + least + 4, nullptr, 10);
}

}  // namespace

std::shared_ptr<const SentencePieceTokenizer> train_sentencepiece(
    const SentencePieceTraining& training, const std::function<std::optional<std::string_view>()>& next) {
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", training.kind},
      {"vocab_size", std::to_string(training.vocab_size)},
      {"hard_vocab_limit", "false"},  // a small text has fewer pieces
      {"byte_fallback", "true"},
      {"character_coverage", "0.9995"},
      // Text is not normalized.
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"allow_whitespace_only_pieces", "true"},  // indentation
      {"unk_id", "0"},
      {"eos_id", "1"},
      {"bos_id", "-1"},
      {"pad_id", "-1"},
      {"max_sentence_length", std::to_string(1 << 20)},  // longer units would be ignored, but units are shorter
      {"num_threads", "4"},                              // the sums depend on it, so it must not depend on the machine
      {"minloglevel", "2"},
  };
  // Runs in a separate process, because an exception in one of the library's threads ends the process when memory runs
  // out.
  core::ChildProcess child("tokenizer", [&](const core::Channel& parent) {
    Sentences sentences(parent);
    std::string model;
    const sentencepiece::util::Status status = sentencepiece::SentencePieceTrainer::Train(settings, &sentences, &model);
    parent.send(!sentences.usable() ? std::string(1, kNothing)
                : status.ok()       ? kModel + model
                                    : kRefusal + status.ToString());
  });
  send_units(child.channel(), next);
  std::optional<std::string> answer = child.channel().receive();
  if (!answer || answer->empty()) child.fail_ended("while SentencePiece learned the tokens");
  const char kind = answer->front();
  answer->erase(0, 1);
  check(kind != kNothing, "[tokenizer] there is no line of text from which {} tokens could be learned", training.kind);
  const std::optional<int64_t> least = kind == kModel ? std::nullopt : min_vocabulary(*answer);
  check_usage(!least,
              "[tokenizer] the vocabulary size is {}, expected at least {}: the bytes and the characters of this text",
              training.vocab_size, least.value_or(0));
  check(kind == kModel, "[tokenizer] SentencePiece cannot make a {} tokenizer of {} tokens from this text: {}",
        training.kind, training.vocab_size, *answer);
  return std::make_shared<const SentencePieceTokenizer>(std::move(*answer), training.kind);
}

}  // namespace alibi::text
