#include "text/sentencepiece_tokenizer.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/check.h"
#include "core/files.h"
#include "core/interrupt.h"
#include "formats/json.h"
#include "text/hash.h"
#include "text/text_encoding.h"
#include "text/tokenizer_files.h"
#include "text/units.h"

namespace alibi::text {

using tokenizers::read_sentencepiece_model;
using tokenizers::SentencePieceModel;

namespace {

constexpr const char* kPieceEndOfText = "</s>";
/// U+2581, which SentencePiece writes for a space. The character itself would be decoded to a space.
constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

/// A model whose pieces can spell any text.
SentencePieceModel read_lossless(std::string_view bytes, const std::string& where) {
  SentencePieceModel model = read_sentencepiece_model(bytes, where);
  const std::string loss = why_not_lossless(model);
  check(loss.empty(), "[tokenizer] {}: {}", where, loss);
  model.unknown_surface = "\xef\xbf\xbd";  // U+FFFD
  return model;
}

/// Length of leading spaces and of the characters after them up to the next space.
size_t word_length(std::string_view text) {
  const size_t letter = std::min(text.find_first_not_of(' '), text.size());
  return std::min(text.find(' ', letter), text.size());
}

/// In BPE, any two other pieces form a merge, the most likely pieces first, because SentencePiece stores only the
/// scores.
formats::Json merges_of(const SentencePieceModel& model) {
  struct Merge {
    float score;
    std::string_view left, right;
  };
  std::unordered_set<std::string_view> pieces;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    if (piece.type == SentencePieceModel::Type::normal) pieces.insert(piece.text);
  }
  std::vector<Merge> merges;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    if (piece.type != SentencePieceModel::Type::normal) continue;
    const std::string_view text = piece.text;
    for (size_t at = utf8_sequence_length(text, 0); at < text.size(); at += utf8_sequence_length(text, at)) {
      const std::string_view left = text.substr(0, at), right = text.substr(at);
      if (pieces.contains(left) && pieces.contains(right)) merges.push_back({piece.score, left, right});
    }
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) { return a.score > b.score; });
  formats::Json result = formats::Json::array();
  for (const Merge& merge : merges) result.push_back(fmt::format("{} {}", merge.left, merge.right));
  return result;
}

/// Only the model part, for Hugging Face's tokenizers library.
formats::Json model_json(const SentencePieceModel& model) {
  if (model.algorithm == SentencePieceModel::Algorithm::bpe) {
    formats::Json vocab = formats::Json::object();
    for (const SentencePieceModel::Piece& piece : model.pieces) vocab[piece.text] = vocab.size();
    return {{"type", "BPE"},         {"dropout", nullptr}, {"unk_token", nullptr},      {"fuse_unk", false},
            {"byte_fallback", true}, {"vocab", vocab},     {"merges", merges_of(model)}};
  }
  formats::Json vocab = formats::Json::array();
  size_t unknown = 0;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    if (piece.type == SentencePieceModel::Type::unknown) unknown = vocab.size();
    vocab.push_back(formats::Json::array({piece.text, piece.score}));
  }
  return {{"type", "Unigram"}, {"unk_id", unknown}, {"vocab", std::move(vocab)}, {"byte_fallback", true}};
}

/// The same tokenizer for Hugging Face's library. Its keys are sorted, because a lookup among unsorted keys visits all
/// of them.
formats::Json tokenizer_json(const SentencePieceModel& model) {
  using Type = SentencePieceModel::Type;
  formats::Json added = formats::Json::array();
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    if (piece.type != Type::unknown && piece.type != Type::control) continue;
    added.push_back(added_token(static_cast<int64_t>(id), piece.text, true));
  }
  const formats::Json to_mark = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}};
  const formats::Json to_space = {{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added)},
          {"normalizer", to_mark},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders", formats::Json::array({to_space, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}})}}},
          {"model", model_json(model)}};
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(std::string model, const std::string& where)
    : model_(std::move(model)), engine_(read_lossless(model_, where), where) {
  check(engine_.is_special(kPieceEndOfText), "[tokenizer] {}: no control piece is named {}", where, kPieceEndOfText);
  end_of_text_ = *engine_.id_of(kPieceEndOfText);
}

uint64_t SentencePieceTokenizer::fingerprint() const { return fnv1a(model_, fnv1a("sentencepiece")); }

std::vector<int32_t> SentencePieceTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  Known known;
  while (!text.empty()) {
    core::check_interrupt();
    const size_t length = unit_length(text);
    encode_unit(text.substr(0, length), known, ids);
    text.remove_prefix(length);
  }
  return ids;
}

void SentencePieceTokenizer::encode_unit(std::string_view unit, Known& known, std::vector<int32_t>& ids) const {
  size_t begin = 0;  // start of the characters that are not encoded yet
  for (size_t at = 0; at < unit.size();) {
    size_t length = utf8_sequence_length(unit, at);
    const bool plain = length > 0 && unit[at] != '\n' && unit[at] != '\0' && unit.substr(at, length) != kSpaceMark &&
                       (unit[at] != ' ' || engine_.id_of(kSpaceMark));
    if (length == 0) length = 1;
    if (!plain) {
      encode_characters(unit.substr(begin, at - begin), known, ids);
      for (const char byte : unit.substr(at, length)) ids.push_back(engine_.id_of_byte(byte));
      begin = at + length;
    }
    at += length;
  }
  encode_characters(unit.substr(begin), known, ids);
}

void SentencePieceTokenizer::encode_characters(std::string_view characters, Known& known,
                                               std::vector<int32_t>& ids) const {
  while (!characters.empty()) {
    const std::string_view word =
        characters.substr(0, engine_.words_apart() ? word_length(characters) : characters.size());
    characters.remove_prefix(word.size());
    const auto [entry, is_new] = known.try_emplace(word);
    if (is_new) entry->second = engine_.encode(word, false);
    ids.insert(ids.end(), entry->second.begin(), entry->second.end());
  }
}

void SentencePieceTokenizer::save(const std::filesystem::path& folder) const {
  core::write_file(folder / kSentencePieceFile, model_);
  formats::write_json(folder / kTokenizerConfigFile, {{"tokenizer_class", "PreTrainedTokenizerFast"},
                                                      {"bos_token", kPieceEndOfText},
                                                      {"eos_token", kPieceEndOfText},
                                                      {"unk_token", "<unk>"},
                                                      {"clean_up_tokenization_spaces", false}});
  const formats::Json json = tokenizer_json(read_sentencepiece_model(model_, kSentencePieceFile));
  core::write_file(folder / kHuggingFaceFile, json.dump(0, ' ', false, formats::Json::error_handler_t::replace) + "\n");
  remove_other_tokenizers(folder, {kSentencePieceFile, kHuggingFaceFile});
}

}  // namespace alibi::text
