#include "context_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "core/format.h"
#include "numbers.h"

namespace alibi::cli {

void add_cache_type(Command& command, std::optional<DType>& type) {
  command.value("--cache-type", "TYPE",
                "Type of keys and values in memory: f32, bf16 or q8_0 (8 bits and a scale per 32 numbers) [the "
                "precision's]",
                [&type](const std::string& word) {
                  constexpr std::pair<std::string_view, DType> types[] = {
                      {"f32", DType::float32}, {"bf16", DType::bfloat16}, {"q8_0", DType::q8_0}};
                  const auto* const found = std::find_if(std::begin(types), std::end(types),
                                                         [&](const auto& known) { return known.first == word; });
                  if (found == std::end(types)) return fmt::format("found '{}', expected f32, bf16 or q8_0", word);
                  type = found->second;
                  return std::string();
                });
}

void add_context_limits(Command& command, ContextOptions& options) {
  add_cache_type(command, options.cached);
  command.value("--memory", "BYTES",
                "Maximum memory for keys and values, such as 256MiB; keys with the least weight are evicted [no limit]",
                [&options](const std::string& word) {
                  int64_t bytes = 0;
                  const std::string wrong = read_bytes(word, bytes);
                  if (wrong.empty()) options.memory = bytes;
                  return wrong;
                });
  command.number("--eviction-tolerance", options.eviction_tolerance,
                 "Evict keys whose share of the attention weight would be below X, such as 1e-7 [no eviction]",
                 {.above = 0, .below = 1});
  command.number("--query-norm", options.query_norm,
                 "With gates: bound on the norm of later queries [that of the model's QK norm or clamp, or 1.25 times "
                 "the largest so far]",
                 {.above = 0});
  command.flag(
      "--exact", options.exact,
      "Stop with an error before evicted keys could have more weight than --eviction-tolerance (default: the rounding "
      "error)");
}

void check_context_limits(const std::string& operation, const ContextOptions& options) {
  check_usage(options.evicts() || !options.query_norm,
              "[{}] --query-norm needs a limit that evicts keys; add --memory or --eviction-tolerance, or leave out "
              "--query-norm",
              operation);
  check_usage(options.evicts() || !options.exact,
              "[{}] --exact needs a limit that evicts keys; add --memory or --eviction-tolerance, or leave out --exact",
              operation);
}

std::string describe_evicted(const EvictionCertificate& certificate) {
  std::string changed;
  if (certificate.score_error > 0) {
    changed =
        fmt::format("The rounding of the cache changed attention scores by at most {:.2g}\n", certificate.score_error);
  }
  if (certificate.keys == 0) return changed;
  return changed + fmt::format(
                       "{} keys were evicted; in any row, their share of the attention weight was at most {:.2g} "
                       "(token {}, layer "
                       "{}, head {})\n",
                       core::format_integer(certificate.keys), certificate.worst,
                       core::format_integer(certificate.position), certificate.layer, certificate.head);
}

nlohmann::ordered_json evicted_json(const ContextOptions& options, const EvictionCertificate& certificate) {
  if (!options.evicts()) return nullptr;
  return {{"memory", options.memory ? nlohmann::ordered_json(*options.memory) : nullptr},
          {"tolerance", options.eviction_tolerance ? nlohmann::ordered_json(*options.eviction_tolerance) : nullptr},
          {"query_norm", options.query_norm ? nlohmann::ordered_json(*options.query_norm) : nullptr},
          {"exact", options.exact},
          {"keys", certificate.keys},
          {"kept", certificate.kept},
          {"worst_share", certificate.worst},
          {"score_error", certificate.score_error},
          {"token", certificate.position},
          {"layer", certificate.layer},
          {"head", certificate.head}};
}

}  // namespace alibi::cli
