#include "text/tokenizers/regex.h"

#include <oniguruma.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <optional>

#include "core/check.h"
#include "text/tokenizers/unicode.h"

namespace alibi::text::tokenizers {
namespace {

constexpr size_t kMaxExpression = size_t{1} << 14;
/// Maximum number of backtracking steps of one search: Oniguruma's default limit for each attempt, and fewer for short
/// texts. Without a limit an expression such as (a|a)+$ would run forever.
unsigned long max_retries(size_t text) { return std::min<unsigned long>(10'000'000, 100'000 + 64 * text); }
/// Maximum number of stored backtracking positions in one search. Each takes some 40 bytes.
unsigned int max_stack(size_t text) { return static_cast<unsigned int>(std::min<size_t>(1u << 26, 4096 + 16 * text)); }

const OnigUChar* bytes_at(std::string_view text, size_t at) {
  return reinterpret_cast<const OnigUChar*>(text.data()) + at;
}

std::string message_of(int code, OnigErrorInfo* info) {
  OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int length = info ? onig_error_code_to_str(message, code, info) : onig_error_code_to_str(message, code);
  return std::string(reinterpret_cast<const char*>(message), static_cast<size_t>(length));
}

/// Oniguruma's tables are initialized once, and its compiler is not thread-safe.
std::mutex& compiler() {
  static std::mutex* const one = new std::mutex;
  static const int ready = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    return onig_initialize(encodings, 1);
  }();
  check(ready == ONIG_NORMAL, "[tokenizer] Oniguruma cannot be used: {}", message_of(ready, nullptr));
  return *one;
}

}  // namespace

Regex::Regex(std::string_view expression, const std::string& where) : where_(where) {
  check(expression.size() <= kMaxExpression, "{}: an expression of {} bytes, expected at most {}", where,
        expression.size(), kMaxExpression);
  const std::lock_guard lock(compiler());
  OnigRegex regex = nullptr;
  OnigErrorInfo info{};
  const int code = onig_new(&regex, bytes_at(expression, 0), bytes_at(expression, expression.size()), ONIG_OPTION_NONE,
                            ONIG_ENCODING_UTF8, ONIG_SYNTAX_DEFAULT, &info);
  if (code == ONIGERR_MEMORY) throw std::bad_alloc();
  check(code == ONIG_NORMAL, "{}: '{}' is not a regular expression: {}", where, expression.substr(0, 60),
        message_of(code, &info));
  compiled_ = std::shared_ptr<void>(regex, [](void* pointer) { onig_free(static_cast<OnigRegex>(pointer)); });
}

Regex Regex::of_text(std::string_view text, const std::string& where) {
  std::string expression;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x80 && is_punctuation(c)) expression += '\\';
    expression += c;
  }
  return {expression, where};
}

void Regex::for_matches(std::string_view text, const std::function<void(size_t, size_t)>& take) const {
  const std::unique_ptr<OnigRegion, void (*)(OnigRegion*)> region(onig_region_new(),
                                                                  [](OnigRegion* r) { onig_region_free(r, 1); });
  const std::unique_ptr<OnigMatchParam, void (*)(OnigMatchParam*)> limits(onig_new_match_param(),
                                                                          onig_free_match_param);
  if (!region || !limits) throw std::bad_alloc();
  onig_initialize_match_param(limits.get());
  onig_set_retry_limit_in_match_of_match_param(limits.get(), max_retries(text.size()));
  onig_set_retry_limit_in_search_of_match_param(limits.get(), max_retries(text.size()));
  onig_set_match_stack_limit_size_of_match_param(limits.get(), max_stack(text.size()));
  const auto regex = static_cast<OnigRegex>(compiled_.get());
  std::optional<size_t> last_end;  // end of the last match
  for (size_t from = 0; from <= text.size();) {
    const int code = onig_search_with_param(regex, bytes_at(text, 0), bytes_at(text, text.size()), bytes_at(text, from),
                                            bytes_at(text, text.size()), region.get(), ONIG_OPTION_NONE, limits.get());
    if (code == ONIG_MISMATCH) return;
    if (code == ONIGERR_MEMORY) throw std::bad_alloc();
    check(code >= 0, "{}: the expression cannot be used on this text: {}", where_, message_of(code, nullptr));
    const auto begin = static_cast<size_t>(region->beg[0]), end = static_cast<size_t>(region->end[0]);
    if (begin == end && last_end == end) {  // skips an empty match directly after another match
      from += from < text.size() ? character_at(text, from).length : 1;
      continue;
    }
    from = end;
    last_end = end;
    take(begin, end);
  }
}

}  // namespace alibi::text::tokenizers
