#include "generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/check.h"

namespace alibi {

int32_t sample_token(std::span<const float> logits, const GenerateOptions& options, const Random& random, uint64_t draw,
                     int32_t banned) {
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

  std::sort(order.begin(), order.end(), likelier);
  check(std::isfinite(logit(order.front())), "[generate] the model's logits are not finite");
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(options.top_k)));
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
  double left = static_cast<double>(random.uniform(draw)) * total;
  for (size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[weights.size() - 1];
}

}  // namespace alibi
