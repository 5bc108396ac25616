#include "text/sentencepiece_tokenizer.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/files.h"
#include "formats/json.h"
#include "text/hash.h"
#include "text/text_encoding.h"
#include "text/tokenizer_files.h"
#include "text/units.h"

namespace alibi {
namespace {

constexpr const char* kPieceEndOfText = "</s>";
/// Models of a quarter of a million pieces have 5 MB. Read, a file takes many times its size.
constexpr size_t kMostBytes = size_t{64} << 20;
/// U+2581, which the library writes for a space: the character itself would come back as one.
constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

std::string with_spaces(std::string_view piece) {
  std::string text;
  for (size_t at = 0; at < piece.size();) {
    const bool space = piece.substr(at).starts_with(kSpaceMark);
    text += space ? ' ' : piece[at];
    at += space ? kSpaceMark.size() : 1;
  }
  return text;
}

/// Spaces, and the characters behind them up to the next space.
size_t word_length(std::string_view text) {
  const size_t letter = std::min(text.find_first_not_of(' '), text.size());
  return std::min(text.find(' ', letter), text.size());
}

/// The same model for Hugging Face's tokenizers library.
OrderedJson unigram_json(const SentencePieceModel& model) {
  using Type = SentencePieceModel::Type;
  OrderedJson vocab = OrderedJson::array(), added = OrderedJson::array();
  size_t unknown = 0;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    const size_t id = vocab.size();
    vocab.push_back(OrderedJson::array({piece.text, piece.score}));
    if (piece.type == Type::unknown) unknown = id;
    if (piece.type != Type::unknown && piece.type != Type::control) continue;
    added.push_back({{"id", id},
                     {"content", piece.text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const OrderedJson to_mark = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}};
  const OrderedJson to_space = {{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added)},
          {"normalizer", to_mark},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders", OrderedJson::array({to_space, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}})}}},
          {"model", {{"type", "Unigram"}, {"unk_id", unknown}, {"vocab", std::move(vocab)}, {"byte_fallback", true}}}};
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(std::string model, const std::string& where)
    : model_(std::move(model)), bytes_(256) {
  using Type = SentencePieceModel::Type;
  const SentencePieceModel read = read_sentencepiece_model(model_, where);
  kind_ = read.algorithm == SentencePieceModel::Algorithm::bpe ? "bpe" : "unigram";
  for (const SentencePieceModel::Piece& piece : read.pieces) {
    const int32_t id = static_cast<int32_t>(texts_.size());
    std::string& text = texts_.emplace_back();
    if (piece.type == Type::normal) text = with_spaces(piece.text);
    has_space_ |= text == " ";
    const size_t letter = text.find_first_not_of(' ');
    words_apart_ &= letter == std::string::npos || text.find(' ', letter) == std::string::npos;
    if (piece.type == Type::unknown) text = "\xef\xbf\xbd";  // U+FFFD
    if (piece.type == Type::control && piece.text == kPieceEndOfText) end_of_text_ = id;
    if (piece.type == Type::byte) {
      const int byte = std::stoi(piece.text.substr(3, 2), nullptr, 16);
      text = static_cast<char>(byte);
      bytes_[static_cast<size_t>(byte)] = id;
    }
  }
  check(end_of_text_ >= 0, "[tokenizer] {}: no control piece is named {}", where, kPieceEndOfText);
  const sentencepiece::util::Status status = processor_.LoadFromSerializedProto(without_self_test(model_));
  check(status.ok(), "[tokenizer] {}: {}", where, status.ToString());
  check(processor_.GetPieceSize() == vocab_size(), "[tokenizer] {}: the library reads {} pieces, expected {}", where,
        processor_.GetPieceSize(), vocab_size());
}

std::shared_ptr<const SentencePieceTokenizer> SentencePieceTokenizer::load(const std::filesystem::path& file) {
  return std::make_shared<SentencePieceTokenizer>(read_file(file, kMostBytes), file.string());
}

uint64_t SentencePieceTokenizer::fingerprint() const { return fnv1a(model_, fnv1a("sentencepiece")); }

std::vector<int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  Known known;
  while (!text.empty()) {
    const size_t length = unit_length(text);
    encode_unit(text.substr(0, length), known, ids);
    text.remove_prefix(length);
  }
  return ids;
}

void SentencePieceTokenizer::encode_unit(std::string_view unit, Known& known, std::vector<int32_t>& ids) const {
  size_t begin = 0;  // of the characters not encoded yet
  for (size_t at = 0; at < unit.size();) {
    size_t length = utf8_sequence_length(unit, at);
    const bool plain = length > 0 && unit[at] != '\n' && unit[at] != '\0' && unit.substr(at, length) != kSpaceMark &&
                       (has_space_ || unit[at] != ' ');
    if (length == 0) length = 1;
    if (!plain) {
      encode_characters(unit.substr(begin, at - begin), known, ids);
      for (const char byte : unit.substr(at, length)) ids.push_back(bytes_[static_cast<unsigned char>(byte)]);
      begin = at + length;
    }
    at += length;
  }
  encode_characters(unit.substr(begin), known, ids);
}

void SentencePieceTokenizer::encode_characters(std::string_view characters, Known& known,
                                               std::vector<int32_t>& ids) const {
  while (!characters.empty()) {
    const std::string_view word = characters.substr(0, words_apart_ ? word_length(characters) : characters.size());
    characters.remove_prefix(word.size());
    const auto [entry, is_new] = known.try_emplace(word);
    if (is_new) {
      const sentencepiece::util::Status status = processor_.Encode(word, &entry->second);
      check(status.ok(), "[tokenizer] {}", status.ToString());
    }
    ids.insert(ids.end(), entry->second.begin(), entry->second.end());
  }
}

std::string SentencePieceTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    check(id >= 0 && id < vocab_size(), "[tokenizer] found the id {}, expected 0 to {}", id, vocab_size() - 1);
    text += texts_[static_cast<size_t>(id)];
  }
  return text;
}

void SentencePieceTokenizer::save(const std::filesystem::path& folder) const {
  write_file(folder / kSentencePieceFile, model_);
  // Hugging Face reads tokenizer.model with this class, but takes every such model for one of byte pairs.
  const bool bpe = kind_ == "bpe";
  write_json(folder / kTokenizerConfigFile, {{"tokenizer_class", bpe ? "LlamaTokenizer" : "PreTrainedTokenizerFast"},
                                             {"bos_token", kPieceEndOfText},
                                             {"eos_token", kPieceEndOfText},
                                             {"unk_token", "<unk>"},
                                             {"add_bos_token", false},
                                             {"add_eos_token", false},
                                             {"add_prefix_space", false},
                                             {"legacy", false},
                                             {"clean_up_tokenization_spaces", false}});
  if (!bpe) write_json(folder / kHuggingFaceFile, unigram_json(read_sentencepiece_model(model_, kSentencePieceFile)));
  remove_other_tokenizers(folder, bpe ? std::set<std::string>{kSentencePieceFile}
                                      : std::set<std::string>{kSentencePieceFile, kHuggingFaceFile});
}

}  // namespace alibi
