// Byte-pair encoding: neighbours are merged in the order of the merge rules.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <queue>
#include <utility>

#include "core/check.h"
#include "text/tokenizers/json_part.h"
#include "text/tokenizers/models.h"
#include "text/tokenizers/unicode.h"

namespace alibi::text::tokenizers {
namespace {

struct BpeSettings {
  std::optional<int32_t> unknown;
  std::string prefix, suffix;  ///< for pieces inside a word, and for its last piece
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
};

class BpeModel final : public Model {
 public:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };
  using Merges = std::unordered_map<uint64_t, Merge>;
  static uint64_t pair_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  BpeModel(Vocabulary vocabulary, Merges merges, BpeSettings settings)
      : Model(std::move(vocabulary), "bpe"), merges_(std::move(merges)), settings_(std::move(settings)) {
    for (int byte = 0; byte < 256; ++byte) {
      bytes_[static_cast<size_t>(byte)] = this->vocabulary().id_of(fmt::format("<0x{:02X}>", byte)).value_or(-1);
    }
  }

  void tokenize(std::string_view word, std::vector<int32_t>& ids) const override {
    if (settings_.ignore_merges) {
      if (const std::optional<int32_t> id = vocabulary().id_of(word)) return ids.push_back(*id);
    }
    std::vector<Symbol> symbols = characters_of(word);
    merge(symbols);
    for (const Symbol& symbol : symbols) {
      if (symbol.id >= 0) ids.push_back(symbol.id);
    }
  }

 private:
  struct Symbol {
    int32_t id;  ///< -1 if it was merged into its predecessor
    int32_t previous, next;
  };
  struct Candidate {
    uint32_t rank;
    int32_t at, id;
    bool operator<(const Candidate& other) const {  // the priority queue returns the largest element first
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };

  std::vector<Symbol> characters_of(std::string_view word) const {
    std::vector<Symbol> symbols;
    symbols.reserve(word.size());
    const auto add = [&](int32_t id) {
      const auto at = static_cast<int32_t>(symbols.size());
      if (at > 0) symbols.back().next = at;
      symbols.push_back({id, at - 1, -1});
    };
    bool unknown = false;  // an unknown token that was not added yet
    std::string changed;
    for (size_t at = 0; at < word.size();) {
      const size_t length = character_at(word, at).length;
      std::string_view piece = word.substr(at, length);
      const bool first = at == 0, last = at + length == word.size();
      at += length;
      if ((!first && !settings_.prefix.empty()) || (last && !settings_.suffix.empty())) {
        changed = fmt::format("{}{}{}", first ? "" : settings_.prefix, piece, last ? settings_.suffix : "");
        piece = changed;
      }
      if (const std::optional<int32_t> id = vocabulary().id_of(piece)) {
        if (unknown) add(*settings_.unknown);
        unknown = false;
        add(*id);
      } else if (settings_.byte_fallback &&
                 std::all_of(piece.begin(), piece.end(), [&](char c) { return id_of_byte(c) >= 0; })) {
        for (const char c : piece) add(id_of_byte(c));
      } else if (settings_.unknown) {
        if (unknown && !settings_.fuse_unknown) add(*settings_.unknown);
        unknown = true;
      }
    }
    if (unknown) add(*settings_.unknown);
    return symbols;
  }

  void merge(std::vector<Symbol>& symbols) const {
    std::priority_queue<Candidate> candidates;
    const auto look_at = [&](int32_t left) {
      const Symbol& symbol = symbols[static_cast<size_t>(left)];
      if (symbol.next < 0) return;
      const auto found = merges_.find(pair_of(symbol.id, symbols[static_cast<size_t>(symbol.next)].id));
      if (found != merges_.end()) candidates.push({found->second.rank, left, found->second.id});
    };
    for (int32_t at = 0; at + 1 < static_cast<int32_t>(symbols.size()); ++at) look_at(at);
    while (!candidates.empty()) {
      const Candidate best = candidates.top();
      candidates.pop();
      Symbol& left = symbols[static_cast<size_t>(best.at)];
      if (left.id < 0 || left.next < 0) continue;
      Symbol& right = symbols[static_cast<size_t>(left.next)];
      const auto found = merges_.find(pair_of(left.id, right.id));
      if (found == merges_.end() || found->second.id != best.id) continue;  // the pair has changed since it was queued
      left.id = best.id;
      left.next = right.next;
      right.id = -1;
      if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = best.at;
      if (left.previous >= 0) look_at(left.previous);
      look_at(best.at);
    }
  }

  int32_t id_of_byte(char byte) const { return bytes_[static_cast<unsigned char>(byte)]; }

  Merges merges_;
  BpeSettings settings_;
  std::array<int32_t, 256> bytes_;  ///< -1 if the byte has no token
};

/// "left right", as in older files, or ["left", "right"].
std::pair<std::string_view, std::string_view> halves_of(const formats::Json& merge, size_t index,
                                                        const std::string& where) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  check(merge.is_string(), "{}: merge {} is {}, expected two strings", where, index, formats::shown(merge));
  const std::string_view text = merge.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  check(space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos,
        "{}: merge {} is '{}', expected two strings with one space between them", where, index, text);
  return {text.substr(0, space), text.substr(space + 1)};
}

}  // namespace

std::unique_ptr<const Model> make_bpe(const Part& settings) {
  const std::string where = place_of(settings);
  check(settings.get_or("dropout", 0.0) == 0.0,
        "{}: found a dropout of {}: the same text would give other tokens each time; set it to null", where,
        settings.get_or("dropout", 0.0));
  Vocabulary vocabulary = read_vocabulary(settings);
  BpeSettings read;
  read.prefix = settings.get_or("continuing_subword_prefix", "");
  read.suffix = settings.get_or("end_of_word_suffix", "");
  read.fuse_unknown = settings.get_or("fuse_unk", false);
  read.byte_fallback = settings.get_or("byte_fallback", false);
  read.ignore_merges = settings.get_or("ignore_merges", false);
  if (settings.has("unk_token")) {
    const auto unknown = settings.get<std::string>("unk_token");
    read.unknown = vocabulary.id_of(unknown);
    check(read.unknown.has_value(), "{}: the unk_token '{}' is not in vocab", where, unknown);
  }
  const formats::Json none = formats::Json::array();
  const auto found = settings.raw().find("merges");
  const formats::Json& list = found == settings.raw().end() ? none : *found;
  check(list.is_array(), "{}: merges is not a list", where);
  BpeModel::Merges merges;
  merges.reserve(list.size());
  const size_t prefix = count_characters(read.prefix);
  std::string joined;
  for (size_t rank = 0; rank < list.size(); ++rank) {
    const auto [left, right] = halves_of(list[rank], rank, where);
    joined.assign(left).append(right.substr(std::min(prefix, right.size())));
    const auto id_of = [&, l = left, r = right](std::string_view token) {
      const std::optional<int32_t> id = vocabulary.id_of(token);
      check(id.has_value(), "{}: merge {} is '{}' and '{}', but '{}' is not in vocab", where, rank, l, r, token);
      return *id;
    };
    merges[BpeModel::pair_of(id_of(left), id_of(right))] = {static_cast<uint32_t>(rank), id_of(joined)};
  }
  return std::make_unique<BpeModel>(std::move(vocabulary), std::move(merges), std::move(read));
}

}  // namespace alibi::text::tokenizers
