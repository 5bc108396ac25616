#include "text/tokenizers/post_processor.h"

#include <limits>
#include <string>
#include <utility>

#include "core/check.h"
#include "text/tokenizers/json_part.h"

namespace alibi::text::tokenizers {
namespace {

constexpr const char* kPostProcessors =
    "TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel or Sequence of these";

int32_t read_id(const formats::Json& id, int32_t end, const std::string& where) {
  check(id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(end),
        "{}: the id of a special token is {}, expected 0 to {}", where, id.dump(), end - 1);
  return static_cast<int32_t>(id.get<int64_t>());
}

/// ["</s>", 2]
int32_t token_id(const Part& part, std::string_view key, int32_t end) {
  const auto token = part.raw().find(key);
  check(token != part.raw().end() && token->is_array() && token->size() == 2, "{}: {} is not a token and its id",
        place_of(part), key);
  return read_id((*token)[1], end, place_of(part));
}

}  // namespace

PostProcessor::PostProcessor(const Part& part, int32_t end) { read(part, end); }

void PostProcessor::read(const Part& part, int32_t end) {
  const auto type = part.get<std::string>("type");
  if (type == "ByteLevel") return;  // it only changes offsets
  if (type == "Sequence") {
    for (const Part& member : members(part, "processors")) read(member, end);
    return;
  }
  if (type != "TemplateProcessing" && type != "RobertaProcessing" && type != "BertProcessing") {
    refuse_type(part, "post-processor", kPostProcessors);
  }
  check(!adds_, "{}: a second post-processor adds special tokens, expected one", place_of(part));
  adds_ = true;
  if (type == "TemplateProcessing") return read_template(part, end);
  const std::vector<int32_t> cls = {token_id(part, "cls", end)}, sep = {token_id(part, "sep", end)};
  single_ = {{-1, cls, 0}, {0, {}, 0}, {-1, sep, 0}};
  pair_ = single_;
  if (type == "RobertaProcessing") {
    pair_.insert(pair_.end(), {{-1, sep, 0}, {1, {}, 0}, {-1, sep, 0}});
    bare_pair_[1].type = 0;
  } else {
    pair_.insert(pair_.end(), {{1, {}, 1}, {-1, sep, 1}});
  }
}

void PostProcessor::read_template(const Part& part, int32_t end) {
  const Part tokens = part.object_or_empty("special_tokens");
  const auto pieces = [&](std::string_view key) {
    Template result;
    for (const Part& member : members(part, key)) {
      Piece& piece = result.emplace_back();
      const bool is_text = member.has("Sequence");
      const Part content = member.object(is_text ? "Sequence" : "SpecialToken");
      piece.type = static_cast<int32_t>(content.get_int("type_id", 0, std::numeric_limits<int32_t>::max()));
      const auto id = content.get<std::string>("id");
      if (is_text) {
        check(id == "A" || id == "B", "{}: found the sequence '{}', expected A or B", place_of(content), id);
        piece.text = id == "B";
        continue;
      }
      check(tokens.has(id), "{}: '{}' is not among special_tokens", place_of(content), id);
      const Part token = tokens.object(id);
      const auto ids = token.raw().find("ids");
      check(ids != token.raw().end() && ids->is_array(), "{}: the special token '{}' has no ids", place_of(part), id);
      for (const formats::Json& one : *ids) piece.ids.push_back(read_id(one, end, place_of(part)));
    }
    return result;
  };
  single_ = pieces("single");
  pair_ = pieces("pair");
  bare_pair_ = pair_;
  const auto count = [](const Template& among, int text) {
    int found = 0;
    for (const Piece& piece : among) found += piece.text == text;
    return found;
  };
  check(count(single_, 0) == 1 && count(single_, 1) == 0, "{}: single does not have the sequence A once, and B never",
        place_of(part));
  check(count(pair_, 0) == 1 && count(pair_, 1) == 1, "{}: pair does not have the sequences A and B once each",
        place_of(part));
}

Sequence PostProcessor::apply(const std::vector<int32_t>& first, const std::optional<std::vector<int32_t>>& second,
                              bool add_special) const {
  Sequence result;
  for (const Piece& piece : second ? (add_special ? pair_ : bare_pair_) : single_) {
    if (piece.text < 0 && !add_special) continue;
    const std::vector<int32_t>& ids = piece.text < 0 ? piece.ids : piece.text == 0 ? first : *second;
    result.ids.insert(result.ids.end(), ids.begin(), ids.end());
    result.types.resize(result.ids.size(), piece.type);
  }
  return result;
}

}  // namespace alibi::text::tokenizers
