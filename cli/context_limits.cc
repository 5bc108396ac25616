#include "context_limits.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "numbers.h"
#include "report/format.h"

namespace alibi::cli {

void add_context_limits(Command& command, ContextOptions& options) {
  command.value("--memory", "BYTES",
                "Most memory for keys and values, such as 256MiB; those that matter least are released [all are kept]",
                [&options](const std::string& word) {
                  int64_t bytes = 0;
                  const std::string wrong = read_bytes(word, bytes);
                  if (wrong.empty()) options.memory = bytes;
                  return wrong;
                });
  command.value("--tolerance", "X",
                "Release keys as soon as they would weigh less than this share of all, such as 1e-7 [all are kept]",
                [&options](const std::string& word) {
                  double share = 0;
                  const std::string wrong = read_number(word, {.above = 0, .below = 1}, share);
                  if (wrong.empty()) options.tolerance = share;
                  return wrong;
                });
  command.flag("--exact", options.exact,
               "End with an error rather than let released keys matter more than --tolerance [or than rounding]");
}

void check_context_limits(const std::string& operation, const ContextOptions& options) {
  check_usage(options.releases() || !options.exact,
              "[{}] --exact says when to end where keys are released; add --memory or --tolerance, or leave it out",
              operation);
}

std::string describe_released(const ReleaseCertificate& certificate) {
  if (certificate.keys == 0) return "";
  return fmt::format(
      "{} keys were released, which could have had at most {:.2g} of the weight in any row (token {}, layer {}, head "
      "{})\n",
      format_integer(certificate.keys), certificate.worst, format_integer(certificate.position), certificate.layer,
      certificate.head);
}

nlohmann::ordered_json released_json(const ContextOptions& options, const ReleaseCertificate& certificate) {
  if (!options.releases()) return nullptr;
  return {{"memory", options.memory ? nlohmann::ordered_json(*options.memory) : nullptr},
          {"tolerance", options.tolerance ? nlohmann::ordered_json(*options.tolerance) : nullptr},
          {"exact", options.exact},
          {"keys", certificate.keys},
          {"worst_share", certificate.worst},
          {"token", certificate.position},
          {"layer", certificate.layer},
          {"head", certificate.head}};
}

}  // namespace alibi::cli
