#include "text/tokenizers/sentencepiece.h"

#include <algorithm>
#include <cfloat>
#include <queue>
#include <utility>

#include "core/check.h"
#include "core/interrupt.h"
#include "text/tokenizers/json_part.h"
#include "text/tokenizers/unicode.h"

namespace alibi::text::tokenizers {
namespace {

/// U+2581, which stands for a space.
constexpr std::string_view kSpace = "\xe2\x96\x81";
/// The score of an unknown character is this much lower than that of the least likely piece.
constexpr float kUnknownCost = 10.0f;

bool crosses_words(std::string_view piece) {
  while (piece.starts_with(kSpace)) piece.remove_prefix(kSpace.size());
  return piece.find(kSpace) != std::string_view::npos;
}

/// Length of leading space marks and of the characters after them up to the next mark.
size_t marked_word_length(std::string_view text) {
  size_t at = 0;
  while (text.substr(at).starts_with(kSpace)) at += kSpace.size();
  return std::min(text.find(kSpace, at), text.size());
}

}  // namespace

SentencePiece::SentencePiece(SentencePieceModel model, const std::string& where)
    : model_(std::move(model)), where_("[tokenizer] " + where) {
  if (!model_.charsmap.empty()) charsmap_.emplace(model_.charsmap, where_);
  lowest_score_ = FLT_MAX;
  highest_score_ = FLT_MIN;
  Pieces pieces, user_defined;
  for (int32_t id = 0; id < end(); ++id) {
    const SentencePieceModel::Piece& piece = model_.pieces[static_cast<size_t>(id)];
    const bool in_text = piece.type == Type::normal || piece.type == Type::user_defined || piece.type == Type::unused;
    (in_text ? ids_ : reserved_).emplace(piece.text, id);
    if (in_text) pieces.emplace_back(piece.text, id);
    if (in_text) words_apart_ &= !crosses_words(piece.text) && piece.type != Type::unused;
    if (piece.type == Type::user_defined) user_defined.emplace_back(piece.text, id);
    if (piece.type == Type::unknown) unknown_ = id;
    if (piece.type == Type::byte) {
      bytes_[static_cast<size_t>(std::stoi(piece.text.substr(3, 2), nullptr, 16))] = id;
    }
    if (piece.type == Type::control && piece.text == model_.begin_piece) begin_ = id;
    if (piece.type == Type::control && piece.text == model_.end_piece) end_ = id;
    if (piece.type != Type::normal) continue;
    lowest_score_ = std::min(lowest_score_, piece.score);
    highest_score_ = std::max(highest_score_, piece.score);
  }
  pieces_ = std::make_unique<const Trie>(std::move(pieces));
  user_defined_ = std::make_unique<const Trie>(std::move(user_defined));
}

std::string_view SentencePiece::algorithm() const {
  return model_.algorithm == SentencePieceModel::Algorithm::bpe ? "bpe" : "unigram";
}

std::optional<int32_t> SentencePiece::id_of(std::string_view token) const {
  for (const auto* ids : {&reserved_, &ids_}) {
    if (const auto found = ids->find(token); found != ids->end()) return found->second;
  }
  return std::nullopt;
}

bool SentencePiece::is_special(std::string_view token) const {
  const auto found = reserved_.find(token);
  return found != reserved_.end() && type_of(found->second) != Type::byte;
}

std::pair<std::string_view, size_t> SentencePiece::normalize_prefix(std::string_view text) const {
  if (const size_t length = user_defined_->longest(text).first; length > 0) return {text.substr(0, length), length};
  if (charsmap_) {
    if (const auto rule = charsmap_->longest(text)) return *rule;
  }
  const size_t length = character_at(text, 0).length;
  return {text.substr(0, length), length};
}

std::string SentencePiece::normalize(std::string_view text) const {
  const std::string_view space = model_.escape_spaces ? kSpace : " ";
  while (model_.remove_extra_spaces && !text.empty()) {
    const auto [part, length] = normalize_prefix(text);
    if (part != " ") break;
    text.remove_prefix(length);
  }
  const size_t before = text.size();
  std::string result;
  if (text.empty()) return result;
  result.reserve(text.size() + text.size() / 2);
  if (!model_.space_as_suffix && model_.dummy_prefix) result += space;
  bool after_space = model_.remove_extra_spaces;
  while (!text.empty()) {
    auto [part, length] = normalize_prefix(text);
    while (after_space && part.starts_with(' ')) part.remove_prefix(1);
    for (const char c : part) c == ' ' ? result += space : result += c;
    if (!part.empty()) after_space = part.ends_with(' ');
    after_space &= model_.remove_extra_spaces;
    text.remove_prefix(length);
    check_growth(before, result.size(), where_);
  }
  while (model_.remove_extra_spaces && result.ends_with(space)) result.resize(result.size() - space.size());
  if (model_.space_as_suffix && model_.dummy_prefix) result += space;
  return result;
}

std::vector<int32_t> SentencePiece::encode(std::string_view text, bool) const {
  const std::string normalized = normalize(text);
  std::vector<int32_t> ids;
  Pieces pieces;
  if (model_.algorithm == SentencePieceModel::Algorithm::unigram) {
    // Rounded sums depend on all earlier characters, so the text is never split.
    encode_unigram(normalized, pieces);
    add(pieces, ids);
    return ids;
  }
  std::unordered_map<std::string_view, Pieces> known;
  for (std::string_view rest = normalized; !rest.empty();) {
    core::check_interrupt();
    const std::string_view word = rest.substr(0, words_apart_ ? marked_word_length(rest) : rest.size());
    rest.remove_prefix(word.size());
    const auto [entry, is_new] = known.try_emplace(word);
    if (is_new) encode_bpe(word, entry->second);
    add(entry->second, ids);
  }
  return ids;
}

void SentencePiece::add(const Pieces& pieces, std::vector<int32_t>& ids) const {
  for (const auto& [text, id] : pieces) {
    if (id != unknown_) {
      ids.push_back(id);
    } else if (model_.byte_fallback) {
      for (const char byte : text) ids.push_back(id_of_byte(byte));
    } else if (ids.empty() || ids.back() != unknown_) {  // neighbouring unknown characters are joined
      ids.push_back(unknown_);
    }
  }
}

void SentencePiece::encode_bpe(std::string_view text, Pieces& pieces) const {
  struct Symbol {
    std::string_view text;  ///< empty if it was merged into its predecessor
    int32_t previous, next;
    bool frozen;
  };
  struct Candidate {
    float score;
    int32_t left, right;
    size_t size;
    bool operator<(const Candidate& other) const {  // the priority queue returns the largest element first
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  std::vector<Symbol> symbols;
  for (size_t at = 0; at < text.size();) {
    const size_t defined = user_defined_->longest(text.substr(at)).first;
    const size_t length = defined > 0 ? defined : character_at(text, at).length;
    const auto index = static_cast<int32_t>(symbols.size());
    const bool last = at + length == text.size();
    symbols.push_back({text.substr(at, length), index - 1, last ? -1 : index + 1, defined > 0});
    at += length;
  }
  const auto symbol = [&](int32_t at) -> Symbol& { return symbols[static_cast<size_t>(at)]; };
  std::priority_queue<Candidate> candidates;
  std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>> halves;  // for unused pieces
  const auto look_at = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0 || symbol(left).frozen || symbol(right).frozen) return;
    const std::string_view joined(symbol(left).text.data(), symbol(left).text.size() + symbol(right).text.size());
    const auto found = ids_.find(joined);
    if (found == ids_.end()) return;
    candidates.push({score_of(found->second), left, right, joined.size()});
    if (type_of(found->second) == Type::unused) halves[joined] = {symbol(left).text, symbol(right).text};
  };
  for (int32_t at = 1; at < static_cast<int32_t>(symbols.size()); ++at) look_at(at - 1, at);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol &left = symbol(best.left), &right = symbol(best.right);
    if (left.text.empty() || right.text.empty() || left.text.size() + right.text.size() != best.size) continue;
    left.text = {left.text.data(), best.size};
    left.next = right.next;
    if (right.next >= 0) symbol(right.next).previous = best.left;
    right.text = {};
    look_at(left.previous, best.left);
    look_at(best.left, left.next);
  }
  std::vector<std::string_view> open;  // pieces to be added, the next one last
  for (int32_t at = 0; at >= 0 && !symbols.empty(); at = symbol(at).next) {
    open = {symbol(at).text};
    while (!open.empty()) {
      const std::string_view piece = open.back();
      open.pop_back();
      const int32_t id = id_of(piece).value_or(unknown_);
      const auto parts = type_of(id) == Type::unused ? halves.find(piece) : halves.end();
      if (parts == halves.end()) {
        pieces.emplace_back(piece, id);
      } else {
        open.push_back(parts->second.second);
        open.push_back(parts->second.first);
      }
    }
  }
}

void SentencePiece::encode_unigram(std::string_view text, Pieces& pieces) const {
  struct Node {
    int32_t id = -1;
    double score = 0;
    size_t begin = SIZE_MAX;  ///< start of the last piece of the best path that ends here
  };
  std::vector<Node> best(text.size() + 1);
  const double unknown_score = lowest_score_ - kUnknownCost;
  for (size_t at = 0; at < text.size();) {
    core::check_interrupt();
    const double score = best[at].score;
    const size_t character = character_at(text, at).length;
    const auto reach = [&](size_t end, double candidate, int32_t id) {
      if (best[end].begin == SIZE_MAX || candidate > best[end].score) {
        best[end] = {id, candidate, at};
      }
    };
    bool single = false;
    pieces_->for_prefixes(text.substr(at), [&](size_t length, int32_t id) {
      if (type_of(id) == Type::unused) return;
      const double own = type_of(id) == Type::user_defined ? static_cast<float>(length) * highest_score_ - 0.1
                                                           : static_cast<double>(score_of(id));
      reach(at + length, own + score, id);
      single |= length == character;
    });
    if (!single) reach(at + character, unknown_score + score, unknown_);
    at += character;
  }
  for (size_t end = text.size(); end > 0; end = best[end].begin) {
    pieces.emplace_back(text.substr(best[end].begin, end - best[end].begin), best[end].id);
  }
  std::reverse(pieces.begin(), pieces.end());
}

Sequence SentencePiece::frame(std::vector<int32_t> first, const std::optional<std::vector<int32_t>>& second,
                              bool add_special) const {
  check_usage(!second,
              "[tokenizer] SentencePiece models cannot encode pairs of texts; encode them one after the other");
  if (add_special && begin_) first.insert(first.begin(), *begin_);
  if (add_special && end_) first.push_back(*end_);
  const std::vector<int32_t> types(first.size());
  return {std::move(first), types};
}

std::string SentencePiece::decode(std::span<const int32_t> ids, bool, bool raw) const {
  std::string text, bytes;
  const auto end_bytes = [&] {
    if (raw) {
      text += bytes;
    } else {
      for_characters(bytes, [&](int32_t code, std::string_view) { append_character(text, code); });
    }
    bytes.clear();
  };
  bool at_start = true, mark_taken = false;
  for (const int32_t id : ids) {
    std::string_view piece = model_.pieces[static_cast<size_t>(id)].text;
    if (type_of(id) == Type::byte) {
      bytes += static_cast<char>(std::stoi(std::string(piece.substr(3, 2)), nullptr, 16));
      continue;
    }
    end_bytes();
    at_start &= !mark_taken && text.empty();
    mark_taken = false;
    if (type_of(id) == Type::control) continue;
    if (type_of(id) == Type::unknown) {
      text += model_.unknown_surface;
      continue;
    }
    if (at_start && (model_.dummy_prefix || model_.remove_extra_spaces) && piece.starts_with(kSpace)) {
      piece.remove_prefix(kSpace.size());
      mark_taken = !model_.remove_extra_spaces;  // otherwise all marks at the beginning are removed
    }
    for (size_t at = 0; at < piece.size();) {
      const size_t mark = std::min(piece.find(kSpace, at), piece.size());
      text += piece.substr(at, mark - at);
      if (mark < piece.size()) text += ' ';
      at = mark + kSpace.size();
    }
  }
  end_bytes();
  return text;
}

}  // namespace alibi::text::tokenizers
