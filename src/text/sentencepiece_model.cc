#include "text/sentencepiece_model.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <unordered_set>

#include "core/check.h"
#include "text/text_encoding.h"
#include "text/units.h"

namespace alibi::text {
namespace {

constexpr size_t kMostPieces = size_t{1} << 20;
/// None that is longer could be found in a unit of text, and the library makes a call within a call for each byte.
constexpr size_t kMostPieceBytes = kMaxUnit;
/// Sums of those of a unit stay finite.
constexpr float kMostScore = 1e30f;

/// The fields of one message of a protocol buffer, one after the other.
class Fields {
 public:
  Fields(std::string_view bytes, std::string_view where) : bytes_(bytes), where_(where) {}

  /// Goes to the next field; false at the end.
  bool next() {
    begin_ = at_;
    if (at_ == bytes_.size()) return false;
    const uint64_t key = varint();
    check(key >> 3 != 0 && key >> 3 < (1u << 29), "[tokenizer] {}: field {} at byte {} is not one of a model", where_,
          key >> 3, at_);
    number_ = static_cast<int>(key >> 3);
    wire_ = static_cast<int>(key & 7);
    value_ = 0;
    content_ = {};
    switch (wire_) {
      case 0:
        value_ = varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        content_ = take(varint());
        break;
      case 5: {
        uint32_t word;
        std::memcpy(&word, take(4).data(), 4);
        value_ = word;
        break;
      }
      default:
        fail("[tokenizer] {}: wire type {} at byte {}: this is no model", where_, wire_, at_);
    }
    return true;
  }

  int number() const { return number_; }
  /// With its number and type.
  std::string_view whole() const { return bytes_.substr(begin_, at_ - begin_); }
  uint64_t integer() const { return of_type(0), value_; }
  bool flag() const { return integer() != 0; }
  float real() const { return of_type(5), std::bit_cast<float>(static_cast<uint32_t>(value_)); }
  std::string_view content() const { return of_type(2), content_; }

 private:
  void of_type(int wire) const {
    check(wire_ == wire, "[tokenizer] {}: field {} has wire type {}, expected {}", where_, number_, wire_, wire);
  }
  std::string_view take(uint64_t count) {
    check(count <= bytes_.size() - at_, "[tokenizer] {}: {} bytes promised at byte {}, {} are left", where_, count, at_,
          bytes_.size() - at_);
    const std::string_view taken = bytes_.substr(at_, static_cast<size_t>(count));
    at_ += taken.size();
    return taken;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail("[tokenizer] {}: a number of more than ten bytes before byte {}", where_, at_);
  }

  std::string_view bytes_, where_;
  size_t begin_ = 0, at_ = 0;
  int number_ = 0, wire_ = 0;
  uint64_t value_ = 0;
  std::string_view content_;
};

SentencePieceModel::Piece read_piece(std::string_view bytes, std::string_view where) {
  SentencePieceModel::Piece piece;
  for (Fields fields(bytes, where); fields.next();) {
    if (fields.number() == 1) piece.text = fields.content();
    check(piece.text.size() <= kMostPieceBytes, "[tokenizer] {}: a piece of {} bytes, expected at most {}", where,
          piece.text.size(), kMostPieceBytes);
    if (fields.number() == 2) piece.score = fields.real();
    if (fields.number() == 3) {
      const uint64_t type = fields.integer();
      check(type >= 1 && type <= 6, "[tokenizer] {}: a piece of type {}, expected 1 to 6", where, type);
      piece.type = static_cast<SentencePieceModel::Type>(type);
    }
  }
  check(!piece.text.empty(), "[tokenizer] {}: a piece is empty", where);
  check(std::abs(piece.score) <= kMostScore, "[tokenizer] {}: the score of a piece is {}", where, piece.score);
  return piece;
}

/// Of the training settings only what decides how text is encoded.
SentencePieceModel::Algorithm read_trainer(std::string_view bytes, std::string_view where) {
  uint64_t algorithm = 1;
  bool byte_fallback = false;
  for (Fields fields(bytes, where); fields.next();) {
    if (fields.number() == 3) algorithm = fields.integer();
    if (fields.number() == 35) byte_fallback = fields.flag();
  }
  check(algorithm == 1 || algorithm == 2, "[tokenizer] {}: model type {}, expected 1 (unigram) or 2 (bpe)", where,
        algorithm);
  check(byte_fallback, "[tokenizer] {}: made without byte_fallback; text of other characters would be lost", where);
  return static_cast<SentencePieceModel::Algorithm>(algorithm);
}

void check_normalizer(std::string_view bytes, std::string_view where) {
  bool prefix = true, shrinks = true, escapes = true, rules = false;
  for (Fields fields(bytes, where); fields.next();) {
    if (fields.number() == 2) rules = !fields.content().empty();
    if (fields.number() == 3) prefix = fields.flag();
    if (fields.number() == 4) shrinks = fields.flag();
    if (fields.number() == 5) escapes = fields.flag();
  }
  check(!rules && !prefix && !shrinks && escapes,
        "[tokenizer] {}: it changes text before encoding it; expected normalization_rule_name identity, "
        "add_dummy_prefix and remove_extra_whitespaces false, escape_whitespaces true",
        where);
}

void check_pieces(const SentencePieceModel& model, std::string_view where) {
  using Type = SentencePieceModel::Type;
  check(!model.pieces.empty(), "[tokenizer] {}: there are no pieces", where);
  std::unordered_set<std::string_view> texts;
  std::set<std::string_view> bytes;
  int unknown = 0;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    check(piece.type != Type::user_defined && piece.type != Type::unused,
          "[tokenizer] {}: piece {} is of type {}, which is not supported", where, id, static_cast<int>(piece.type));
    bool well_formed = true;
    for (size_t at = 0; well_formed && at < piece.text.size();) {
      const size_t length = utf8_sequence_length(piece.text, at);
      well_formed = length > 0 && piece.text[at] != '\0';
      at += length;
    }
    check(well_formed, "[tokenizer] {}: piece {} is not text", where, id);
    // Of two pieces with one text the library takes one for the other; and it takes a character of the text for any
    // piece of its name.
    check(texts.insert(piece.text).second, "[tokenizer] {}: piece {} has the text of another one", where, id);
    check(piece.type == Type::normal || utf8_sequence_length(piece.text, 0) < piece.text.size(),
          "[tokenizer] {}: piece {} is a single character, but stands for something else", where, id);
    unknown += piece.type == Type::unknown;
    if (piece.type == Type::byte) bytes.insert(piece.text);
  }
  check(unknown == 1, "[tokenizer] {}: {} pieces stand for the unknown, expected 1", where, unknown);
  for (int byte = 0; byte < 256; ++byte) {
    check(bytes.contains(fmt::format("<0x{:02X}>", byte)), "[tokenizer] {}: no piece stands for the byte {}", where,
          byte);
  }
  check(bytes.size() == 256, "[tokenizer] {}: {} pieces stand for bytes, expected 256", where, bytes.size());
}

}  // namespace

SentencePieceModel read_sentencepiece_model(std::string_view bytes, std::string_view where) {
  SentencePieceModel model;
  bool trainer = false, normalizer = false;
  for (Fields fields(bytes, where); fields.next();) {
    if (fields.number() == 1) {
      check(model.pieces.size() < kMostPieces, "[tokenizer] {}: more than {} pieces", where, kMostPieces);
      model.pieces.push_back(read_piece(fields.content(), where));
    }
    if (fields.number() == 2) {
      check(!trainer, "[tokenizer] {}: two sets of training settings", where);
      model.algorithm = read_trainer(fields.content(), where);
      trainer = true;
    }
    if (fields.number() == 3) {
      check(!normalizer, "[tokenizer] {}: two normalizers", where);
      check_normalizer(fields.content(), where);
      normalizer = true;
    }
    if (fields.number() == 5) {
      for (Fields inner(fields.content(), where); inner.next();) {
        check(inner.number() != 2 || inner.content().empty(), "[tokenizer] {}: it changes text after decoding it",
              where);
      }
    }
  }
  check(trainer && normalizer, "[tokenizer] {}: this is no model of SentencePiece", where);
  check_pieces(model, where);
  return model;
}

std::string without_self_test(std::string_view bytes) {
  std::string rest;
  for (Fields fields(bytes, "self test"); fields.next();) {
    if (fields.number() != 4) rest += fields.whole();
  }
  return rest;
}

}  // namespace alibi::text
