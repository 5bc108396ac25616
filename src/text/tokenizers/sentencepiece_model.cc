#include "text/tokenizers/sentencepiece_model.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <unordered_set>

#include "core/check.h"
#include "text/tokenizers/unicode.h"

namespace alibi::text::tokenizers {
namespace {

constexpr size_t kMaxPieces = size_t{1} << 20;
/// Real pieces have less than a hundredth of it.
constexpr size_t kMaxPieceBytes = 4096;
/// Keeps the sums of the scores of a unit finite.
constexpr float kMaxScore = 1e30f;

/// Iterates over the fields of a protocol buffer message.
class Fields {
 public:
  Fields(std::string_view bytes, std::string_view where) : bytes_(bytes), where_(where) {}

  /// Advances to the next field. Returns false at the end.
  bool next() {
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
        fail("[tokenizer] {}: wire type {} at byte {}: this is not a model", where_, wire_, at_);
    }
    return true;
  }

  int number() const { return number_; }
  uint64_t integer() const { return of_type(0), value_; }
  bool flag() const { return integer() != 0; }
  float real() const { return of_type(5), std::bit_cast<float>(static_cast<uint32_t>(value_)); }
  std::string_view content() const { return of_type(2), content_; }

 private:
  void of_type(int wire) const {
    check(wire_ == wire, "[tokenizer] {}: field {} has wire type {}, expected {}", where_, number_, wire_, wire);
  }
  std::string_view take(uint64_t count) {
    check(count <= bytes_.size() - at_,
          "[tokenizer] {}: a field of {} bytes begins at byte {}, but only {} bytes are left", where_, count, at_,
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
  size_t at_ = 0;
  int number_ = 0, wire_ = 0;
  uint64_t value_ = 0;
  std::string_view content_;
};

SentencePieceModel::Piece read_piece(std::string_view bytes, std::string_view where) {
  SentencePieceModel::Piece piece;
  for (Fields fields(bytes, where); fields.next();) {
    if (fields.number() == 1) piece.text = fields.content();
    check(piece.text.size() <= kMaxPieceBytes, "[tokenizer] {}: a piece of {} bytes, expected at most {}", where,
          piece.text.size(), kMaxPieceBytes);
    if (fields.number() == 2) piece.score = fields.real();
    if (fields.number() == 3) {
      const uint64_t type = fields.integer();
      check(type >= 1 && type <= 6, "[tokenizer] {}: a piece of type {}, expected 1 to 6", where, type);
      piece.type = static_cast<SentencePieceModel::Type>(type);
    }
  }
  check(!piece.text.empty(), "[tokenizer] {}: a piece is empty", where);
  check(std::abs(piece.score) <= kMaxScore, "[tokenizer] {}: the score of a piece is {}", where, piece.score);
  return piece;
}

/// Reads only the training settings that affect encoding.
void read_trainer(SentencePieceModel& model, std::string_view bytes, std::string_view where) {
  uint64_t algorithm = 1;
  for (Fields fields(bytes, where); fields.next();) {
    if (fields.number() == 3) algorithm = fields.integer();
    if (fields.number() == 24) model.space_as_suffix = fields.flag();
    if (fields.number() == 35) model.byte_fallback = fields.flag();
    if (fields.number() == 44) model.unknown_surface = fields.content();
    if (fields.number() == 46) model.begin_piece = fields.content();
    if (fields.number() == 47) model.end_piece = fields.content();
  }
  check(algorithm == 1 || algorithm == 2,
        "[tokenizer] {}: model type {}{}, expected 1 (unigram) or 2 (bpe); models of words and of characters cannot be "
        "read",
        where, algorithm,
        algorithm == 3   ? " (word)"
        : algorithm == 4 ? " (char)"
                         : "");
  model.algorithm = static_cast<SentencePieceModel::Algorithm>(algorithm);
}

void read_normalizer(SentencePieceModel& model, std::string_view bytes, std::string_view where) {
  for (Fields fields(bytes, where); fields.next();) {
    if (fields.number() == 2) model.charsmap = fields.content();
    if (fields.number() == 3) model.dummy_prefix = fields.flag();
    if (fields.number() == 4) model.remove_extra_spaces = fields.flag();
    if (fields.number() == 5) model.escape_spaces = fields.flag();
  }
}

bool is_text(std::string_view text) {
  return text.find('\0') == std::string_view::npos && replace_malformed(text) == text;
}

void check_pieces(const SentencePieceModel& model, std::string_view where) {
  using Type = SentencePieceModel::Type;
  check(!model.pieces.empty(), "[tokenizer] {}: there are no pieces", where);
  std::unordered_set<std::string_view> texts;
  std::set<std::string_view> bytes;
  int unknown = 0;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    check(is_text(piece.text), "[tokenizer] {}: piece {} is not text", where, id);
    // If two pieces have the same text, the library confuses them.
    check(texts.insert(piece.text).second, "[tokenizer] {}: piece {} has the text of another one", where, id);
    unknown += piece.type == Type::unknown;
    if (piece.type == Type::byte) bytes.insert(piece.text);
  }
  check(unknown == 1, "[tokenizer] {}: {} pieces stand for the unknown, expected 1", where, unknown);
  check(is_text(model.unknown_surface), "[tokenizer] {}: what the unknown is decoded to is not text", where);
  if (!model.byte_fallback && bytes.empty()) return;
  for (int byte = 0; byte < 256; ++byte) {
    check(bytes.contains(fmt::format("<0x{:02X}>", byte)), "[tokenizer] {}: no piece stands for the byte {}", where,
          byte);
  }
  check(bytes.size() == 256, "[tokenizer] {}: {} pieces stand for bytes, expected 256", where, bytes.size());
}

std::string varint_of(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string field_of(unsigned number, uint64_t value) { return varint_of(number << 3) + varint_of(value); }
std::string field_of(unsigned number, std::string_view bytes) {
  return varint_of(number << 3 | 2) + varint_of(bytes.size()) + std::string(bytes);
}

}  // namespace

SentencePieceModel read_sentencepiece_model(std::string_view bytes, std::string_view where) {
  SentencePieceModel model;
  bool trainer = false, normalizer = false;
  for (Fields fields(bytes, where); fields.next();) {
    if (fields.number() == 1) {
      check(model.pieces.size() < kMaxPieces, "[tokenizer] {}: more than {} pieces", where, kMaxPieces);
      model.pieces.push_back(read_piece(fields.content(), where));
    }
    if (fields.number() == 2) {
      check(!trainer, "[tokenizer] {}: two sets of training settings", where);
      read_trainer(model, fields.content(), where);
      trainer = true;
    }
    if (fields.number() == 3) {
      check(!normalizer, "[tokenizer] {}: two normalizers", where);
      read_normalizer(model, fields.content(), where);
      normalizer = true;
    }
    if (fields.number() == 5) {
      for (Fields inner(fields.content(), where); inner.next();) {
        check(inner.number() != 2 || inner.content().empty(), "[tokenizer] {}: it changes text after decoding it",
              where);
      }
    }
  }
  check(trainer && normalizer, "[tokenizer] {}: this is not a SentencePiece model", where);
  check_pieces(model, where);
  return model;
}

std::string write_sentencepiece_model(const SentencePieceModel& model) {
  std::string bytes;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    std::string score(sizeof piece.score, '\0');
    std::memcpy(score.data(), &piece.score, sizeof piece.score);
    score = varint_of(2 << 3 | 5) + score;  // wire type 5
    bytes += field_of(1, field_of(1, piece.text) + score + field_of(3, static_cast<uint64_t>(piece.type)));
  }
  bytes +=
      field_of(2, field_of(3, static_cast<uint64_t>(model.algorithm)) + field_of(24, uint64_t{model.space_as_suffix}) +
                      field_of(35, uint64_t{model.byte_fallback}) + field_of(44, model.unknown_surface) +
                      field_of(46, model.begin_piece) + field_of(47, model.end_piece));
  return bytes +
         field_of(3, (model.charsmap.empty() ? "" : field_of(2, model.charsmap)) +
                         field_of(3, uint64_t{model.dummy_prefix}) + field_of(4, uint64_t{model.remove_extra_spaces}) +
                         field_of(5, uint64_t{model.escape_spaces}));
}

std::string why_not_lossless(const SentencePieceModel& model) {
  using Type = SentencePieceModel::Type;
  if (!model.byte_fallback) return "made without byte_fallback; text of other characters would be lost";
  if (!model.charsmap.empty() || model.dummy_prefix || model.remove_extra_spaces || !model.escape_spaces) {
    return "it changes text before encoding it; expected normalization_rule_name identity, add_dummy_prefix and "
           "remove_extra_whitespaces false, escape_whitespaces true";
  }
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    if (piece.type == Type::user_defined || piece.type == Type::unused) {
      return fmt::format("piece {} is of type {}, which is not supported", id, static_cast<int>(piece.type));
    }
    // The library confuses a character of the text with any piece of the same text.
    if (piece.type != Type::normal && character_at(piece.text, 0).length == piece.text.size()) {
      return fmt::format("piece {} is a single character, but stands for something else", id);
    }
  }
  return {};
}

}  // namespace alibi::text::tokenizers
