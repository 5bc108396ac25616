#include "text/tokenizers/decoders.h"

#include <charconv>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/format.h"
#include "text/tokenizers/byte_level.h"
#include "text/tokenizers/json_part.h"
#include "text/tokenizers/unicode.h"

namespace alibi::text::tokenizers {
namespace {

constexpr const char* kDecoders =
    "Sequence, ByteLevel, ByteFallback, BPEDecoder, WordPiece, Metaspace, Replace, Strip or Fuse";

void join(std::vector<std::string>& tokens) {
  std::string joined;
  for (const std::string& token : tokens) joined += token;
  tokens = {std::move(joined)};
}

void decode_bytes(std::vector<std::string>& tokens, bool raw) {
  std::string bytes;
  for (const std::string& token : tokens) append_bytes(bytes, token);
  tokens = {raw ? bytes : replace_malformed(bytes)};
}

std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  unsigned byte = 0;
  const auto [stop, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || stop != token.data() + 5) return std::nullopt;
  return static_cast<char>(byte);
}

void decode_fallback(std::vector<std::string>& tokens, bool raw) {
  std::vector<std::string> result;
  std::string bytes;
  const auto end_bytes = [&] {
    if (raw || replace_malformed(bytes) == bytes) {
      if (!bytes.empty()) result.push_back(bytes);
    } else {
      result.insert(result.end(), bytes.size(), "\xef\xbf\xbd");  // one U+FFFD for each byte
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const std::optional<char> byte = fallback_byte(token)) {
      bytes += *byte;
      continue;
    }
    end_bytes();
    result.push_back(std::move(token));
  }
  end_bytes();
  tokens = std::move(result);
}

void decode_word_pieces(std::vector<std::string>& tokens, std::string_view prefix, bool cleanup) {
  constexpr std::pair<std::string_view, std::string_view> cleaner[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (size_t i = 0; i < tokens.size(); ++i) {
    std::string& token = tokens[i];
    if (i > 0) token.starts_with(prefix) ? token.erase(0, prefix.size()) : token.insert(0, " ");
    for (const auto& [from, to] : cleaner) {
      if (cleanup) token = core::replace_all(token, from, to);
    }
  }
}

void decode_metaspace(std::vector<std::string>& tokens, std::string_view mark, bool prepended) {
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = core::replace_all(tokens[i], mark, i == 0 && prepended ? "" : " ");
}

void strip(std::string& token, std::string_view content, int64_t start, int64_t stop) {
  std::string_view rest = token;
  for (; start > 0 && rest.starts_with(content); --start) rest.remove_prefix(content.size());
  for (; stop > 0 && rest.ends_with(content); --stop) rest.remove_suffix(content.size());
  token = std::string(rest);
}

}  // namespace

Decoder make_decoder(const Part& part) {
  using Tokens = std::vector<std::string>;
  const auto type = part.get<std::string>("type");
  if (type == "ByteLevel") return decode_bytes;
  if (type == "ByteFallback") return decode_fallback;
  if (type == "Fuse") return [](Tokens& tokens, bool) { join(tokens); };
  if (type == "Replace") {
    return [replace = replacement_of(part)](Tokens& tokens, bool) {
      for (std::string& token : tokens) token = replace(token);
    };
  }
  if (type == "BPEDecoder") {
    return [suffix = part.get_or("suffix", "</w>")](Tokens& tokens, bool) {
      for (size_t i = 0; i < tokens.size(); ++i) {
        tokens[i] = core::replace_all(tokens[i], suffix, i + 1 < tokens.size() ? " " : "");
      }
    };
  }
  if (type == "WordPiece") {
    return [prefix = part.get_or("prefix", "##"), cleanup = part.get_or("cleanup", true)](Tokens& tokens, bool) {
      decode_word_pieces(tokens, prefix, cleanup);
    };
  }
  if (type == "Metaspace") {
    const auto scheme = part.get_or("prepend_scheme", part.get_or("add_prefix_space", true) ? "always" : "never");
    return [mark = one_character(part, "replacement", "\xe2\x96\x81"), prepended = scheme != "never"](
               Tokens& tokens, bool) { decode_metaspace(tokens, mark, prepended); };
  }
  if (type == "Strip") {
    constexpr int64_t most = std::numeric_limits<int32_t>::max();
    return [content = one_character(part, "content"), start = part.get_int("start", 0, most),
            stop = part.get_int("stop", 0, most)](Tokens& tokens, bool) {
      for (std::string& token : tokens) strip(token, content, start, stop);
    };
  }
  if (type == "Sequence") {
    std::vector<Decoder> parts;
    for (const Part& member : members(part, "decoders")) parts.push_back(make_decoder(member));
    return [parts = std::move(parts)](Tokens& tokens, bool raw) {
      for (const Decoder& one : parts) one(tokens, raw);
    };
  }
  refuse_type(part, "decoder", kDecoders);
}

}  // namespace alibi::text::tokenizers
