// A unigram language model, which finds the most likely sequence of pieces.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "core/check.h"
#include "text/tokenizers/json_part.h"
#include "text/tokenizers/models.h"
#include "text/tokenizers/trie.h"
#include "text/tokenizers/unicode.h"

namespace alibi::text::tokenizers {
namespace {

/// The score of an unknown character is this much lower than that of the least likely piece.
constexpr double kUnknownPenalty = 10.0;

class UnigramModel final : public Model {
 public:
  UnigramModel(Vocabulary vocabulary, std::vector<double> scores, std::optional<int32_t> unknown, bool byte_fallback,
               std::string where)
      : Model(std::move(vocabulary), "unigram"),
        scores_(std::move(scores)),
        unknown_(unknown),
        unknown_score_(*std::min_element(scores_.begin(), scores_.end()) - kUnknownPenalty),
        pieces_(entries()),
        where_(std::move(where)) {
    for (int byte = 0; byte < 256; ++byte) {
      const auto id = byte_fallback ? this->vocabulary().id_of(fmt::format("<0x{:02X}>", byte)) : std::nullopt;
      bytes_[static_cast<size_t>(byte)] = id.value_or(-1);
    }
  }

  void tokenize(std::string_view word, std::vector<int32_t>& ids) const override {
    const std::vector<Node> best = best_paths(word);
    std::vector<Part> parts;  // from the last to the first
    bool fuses = false;       // whether it is joined with the preceding unknown character
    for (size_t end = word.size(); end > 0;) {
      const Node& node = best[end];
      const bool unknown = node.id == unknown_;
      if (unknown && fuses) {
        parts.back().begin = node.begin;
      } else {
        parts.push_back({node.begin, end});
      }
      fuses = unknown;
      end = node.begin;
    }
    for (auto part = parts.rbegin(); part != parts.rend(); ++part)
      add(word.substr(part->begin, part->end - part->begin), ids);
  }

 private:
  struct Node {
    double score = 0;
    size_t begin = kNowhere;  ///< start of the last piece of the best path that ends here
    std::optional<int32_t> id;
  };
  struct Part {
    size_t begin, end;
  };
  static constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

  std::vector<std::pair<std::string_view, int32_t>> entries() const {
    std::vector<std::pair<std::string_view, int32_t>> result;
    for (int32_t id = 0; id < vocabulary().end(); ++id) result.emplace_back(*vocabulary().token_of(id), id);
    return result;
  }

  std::vector<Node> best_paths(std::string_view word) const {
    std::vector<Node> best(word.size() + 1);
    for (size_t at = 0; at < word.size();) {
      const double score = best[at].score;
      const size_t character = character_at(word, at).length;
      const auto reach = [&](size_t end, double candidate, std::optional<int32_t> id) {
        if (best[end].begin == kNowhere || candidate > best[end].score) best[end] = {candidate, at, id};
      };
      bool single = false;
      pieces_.for_prefixes(word.substr(at), [&](size_t length, int32_t id) {
        reach(at + length, scores_[static_cast<size_t>(id)] + score, id);
        single |= length == character;
      });
      if (!single) reach(at + character, unknown_score_ + score, unknown_);
      at += character;
    }
    return best;
  }

  void add(std::string_view piece, std::vector<int32_t>& ids) const {
    if (const std::optional<int32_t> id = vocabulary().id_of(piece)) return ids.push_back(*id);
    const auto id_of_byte = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
    if (std::all_of(piece.begin(), piece.end(), [&](char byte) { return id_of_byte(byte) >= 0; })) {
      for (const char byte : piece) ids.push_back(id_of_byte(byte));
      return;
    }
    check(unknown_.has_value(), "{}: no piece stands for '{}', and unk_id is null", where_, piece);
    ids.push_back(*unknown_);
  }

  std::vector<double> scores_;  ///< by id
  std::optional<int32_t> unknown_;
  double unknown_score_;
  Trie pieces_;
  std::array<int32_t, 256> bytes_;  ///< -1 if the byte has no token
  std::string where_;
};

}  // namespace

std::unique_ptr<const Model> make_unigram(const Part& settings) {
  const std::string where = place_of(settings);
  const auto vocab = settings.raw().find("vocab");
  check(vocab != settings.raw().end() && vocab->is_array() && !vocab->empty(),
        "{}: there is no vocab, a list of pieces and their scores", where);
  Vocabulary vocabulary;
  std::vector<double> scores;
  for (size_t id = 0; id < vocab->size(); ++id) {
    const formats::Json& piece = (*vocab)[id];
    check(piece.is_array() && piece.size() == 2 && piece[0].is_string() && piece[1].is_number() &&
              std::abs(piece[1].get<double>()) < 1e30,
          "{}: piece {} of vocab is {}, expected a string and a score", where, id, formats::shown(piece));
    vocabulary.add(piece[0].get<std::string>(), static_cast<int64_t>(id), vocab->size(), where);
    scores.push_back(piece[1].get<double>());
  }
  std::optional<int32_t> unknown;
  if (settings.has("unk_id")) {
    unknown = static_cast<int32_t>(settings.get_int("unk_id", 0, static_cast<int64_t>(scores.size()) - 1));
  }
  return std::make_unique<UnigramModel>(std::move(vocabulary), std::move(scores), unknown,
                                        settings.get_or("byte_fallback", false), where);
}

}  // namespace alibi::text::tokenizers
