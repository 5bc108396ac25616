// Log-probabilities of tokens in the formats of completions and of chats.
#include <fmt/format.h>

#include <string>
#include <unordered_set>
#include <utility>

#include "serve/completion.h"
#include "text/text_encoding.h"

namespace alibi::serve {
namespace {

/// Bytes that are no text on their own are written as OpenAI does: bytes:\xe2\x80.
std::string shown(const std::string& piece) {
  if (text::malformed_bytes(piece).empty()) return piece;
  std::string name = "bytes:";
  for (const char byte : piece) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return name;
}

OrderedJson bytes_of(const std::string& piece) {
  auto bytes = OrderedJson::array();
  for (const char byte : piece) bytes.push_back(static_cast<unsigned char>(byte));
  return bytes;
}

}  // namespace

void LogprobsJson::add(const EngineToken& token) {
  const std::string piece = pieces_.peek(token.id);
  const OrderedJson logprob = or_null(token.logprob);
  if (is_chat_) {
    auto top = OrderedJson::array();
    for (const TokenProbability& other : token.top) {
      const std::string text = pieces_.peek(other.id);
      top.push_back({{"token", shown(text)}, {"logprob", other.logprob}, {"bytes", bytes_of(text)}});
    }
    content_.push_back(
        {{"token", shown(piece)}, {"logprob", logprob}, {"bytes", bytes_of(piece)}, {"top_logprobs", std::move(top)}});
    pieces_.add(token.id);
  } else {
    OrderedJson top;
    if (token.logprob) {
      // Of tokens with the same text, the most likely one counts. The token itself is always present.
      OrderedJson::object_t members;  // its emplace() searches all members
      std::unordered_set<std::string> names;
      const auto add_member = [&](std::string name, float value) {
        if (names.insert(name).second) members.emplace_back(std::move(name), value);
      };
      for (const TokenProbability& other : token.top) add_member(shown(pieces_.peek(other.id)), other.logprob);
      add_member(shown(piece), *token.logprob);
      top = std::move(members);
    }
    tokens_.push_back(shown(piece));
    logprobs_.push_back(logprob);
    top_.push_back(std::move(top));
    offsets_.push_back(characters_.add(pieces_.add(token.id)));
  }
}

OrderedJson LogprobsJson::take() {
  if (is_chat_) return {{"content", std::exchange(content_, OrderedJson::array())}, {"refusal", nullptr}};
  return {{"tokens", std::exchange(tokens_, OrderedJson::array())},
          {"token_logprobs", std::exchange(logprobs_, OrderedJson::array())},
          {"top_logprobs", std::exchange(top_, OrderedJson::array())},
          {"text_offset", std::exchange(offsets_, OrderedJson::array())}};
}

}  // namespace alibi::serve
