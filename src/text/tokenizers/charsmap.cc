#include "text/tokenizers/charsmap.h"

#include <cstring>

#include "core/check.h"
#include "text/tokenizers/unicode.h"

namespace alibi::text::tokenizers {
namespace {

// A unit of Darts-clone.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) == 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7fffffff; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000ff; }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view bytes, const std::string& where) {
  uint32_t size = 0;
  check(bytes.size() > sizeof size, "{}: the rules of normalization have {} bytes", where, bytes.size());
  std::memcpy(&size, bytes.data(), sizeof size);
  bytes.remove_prefix(sizeof size);
  check(size > 0 && size < bytes.size() && size % sizeof(uint32_t) == 0,
        "{}: the rules of normalization are damaged: {} of {} bytes for their tree", where, size, bytes.size());
  units_.resize(size / sizeof(uint32_t));
  std::memcpy(units_.data(), bytes.data(), size);
  texts_ = bytes.substr(size);
  check(texts_.back() == '\0', "{}: the rules of normalization are damaged: their texts have no end", where);
  check(replace_malformed(texts_) == texts_, "{}: the rules of normalization are damaged: a text is not UTF-8", where);
}

template <class Take>
void Charsmap::for_prefixes(std::string_view text, const Take& take) const {
  size_t node = 0;
  if (node >= units_.size()) return;
  node ^= offset_of(units_[node]);
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) return;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= units_.size() || value_of(units_[node]) >= texts_.size()) return;
    const std::string_view replacement = texts_.c_str() + value_of(units_[node]);
    if (!take(replacement, at + 1)) return;
  }
}

std::optional<std::pair<std::string_view, size_t>> Charsmap::longest(std::string_view text) const {
  std::optional<std::pair<std::string_view, size_t>> found;
  for_prefixes(text, [&](std::string_view replacement, size_t length) {
    found = {replacement, length};
    return true;
  });
  return found;
}

std::optional<std::string_view> Charsmap::shortest(std::string_view text) const {
  std::optional<std::string_view> found;
  for_prefixes(text, [&](std::string_view replacement, size_t) {
    found = replacement;
    return false;
  });
  return found;
}

std::string from_base64(std::string_view text, const std::string& where) {
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string bytes;
  unsigned bits = 0;
  int count = 0;
  for (const char c : text) {
    const size_t digit = digits.find(c);
    check(digit != std::string_view::npos, "{}: it is not in base 64", where);
    bits = bits << 6 | static_cast<unsigned>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

}  // namespace alibi::text::tokenizers
