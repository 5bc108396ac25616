#include "generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/check.h"

namespace alibi::generation {

void check_options(const GenerateOptions& options) {
  check_usage(options.max_tokens >= 0, "[generate] {} tokens asked for, expected at least 0", options.max_tokens);
  check_usage(std::isfinite(options.temperature) && options.temperature >= 0,
              "[generate] the temperature is {}, expected at least 0", options.temperature);
  check_usage(options.top_p > 0 && options.top_p <= 1, "[generate] top_p is {}, expected above 0, at most 1",
              options.top_p);
  check_usage(options.top_k >= 0, "[generate] top_k is {}, expected at least 0", options.top_k);
  check_usage(options.min_p >= 0 && options.min_p <= 1, "[generate] min_p is {}, expected 0 to 1", options.min_p);
  check_usage(std::isfinite(options.repetition_penalty) && options.repetition_penalty > 0,
              "[generate] the repetition penalty is {}, expected above 0", options.repetition_penalty);
}

void check_logits(std::span<const float> logits) {
  const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return !std::isfinite(x); });
  if (bad == logits.end()) return;
  throw NotFiniteError(
      fmt::format("[generate] the logit of token {} is {}, expected a finite number: the model overflows, its weights "
                  "are too large",
                  bad - logits.begin(), *bad));
}

std::vector<float> penalized(std::span<const float> logits, const std::vector<bool>& seen, double penalty) {
  std::vector<float> result(logits.begin(), logits.end());
  for (size_t i = 0; i < result.size(); ++i) {
    if (!seen[i]) continue;
    const auto logit = static_cast<double>(result[i]);
    result[i] = static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
  }
  return result;
}

int32_t sample_token(std::span<const float> logits, const GenerateOptions& options, const core::Random& random,
                     uint64_t draw, int32_t banned) {
  std::vector<int32_t> order;
  order.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (static_cast<int32_t>(i) != banned) order.push_back(static_cast<int32_t>(i));
  }
  check(!order.empty(), "[generate] no token may be drawn: the vocabulary is empty");
  const auto logit = [&](int32_t token) { return logits[static_cast<size_t>(token)]; };
  // Ties go to the lower id, so that the order is total and a sample does not depend on the sort.
  const auto likelier = [&](int32_t a, int32_t b) { return logit(a) != logit(b) ? logit(a) > logit(b) : a < b; };
  if (options.temperature == 0) return *std::min_element(order.begin(), order.end(), likelier);

  const size_t most = options.top_k > 0 ? std::min(order.size(), static_cast<size_t>(options.top_k)) : order.size();
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most), order.end(), likelier);
  check(std::isfinite(logit(order.front())), "[generate] the model's logits are not finite");
  order.resize(most);
  std::vector<double> weights;
  double total = 0;
  for (const int32_t token : order) {
    const double difference = static_cast<double>(logit(token)) - static_cast<double>(logit(order.front()));
    weights.push_back(std::exp(difference / options.temperature));
    total += weights.back();
  }
  if (options.top_p < 1) {
    double kept = 0;
    size_t count = 0;
    while (count < weights.size() && kept < options.top_p * total) kept += weights[count++];
    weights.resize(count);
    total = kept;
  }
  while (weights.back() < options.min_p * weights.front()) {  // ends at the first one at the latest
    total -= weights.back();
    weights.pop_back();
  }
  double left = static_cast<double>(random.uniform(draw)) * total;
  for (size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[weights.size() - 1];
}

}  // namespace alibi::generation
