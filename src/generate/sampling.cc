#include "generate/sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "core/check.h"

namespace alibi::generation {
namespace {

struct Candidate {
  double weight;  // relative to that of the most likely token
  uint32_t rank;  // smaller for larger logits
  int32_t id;
};

/// The bits of a float as an unsigned integer that falls as the float rises. Both zeros have the same rank.
uint32_t rank_of(float logit) {
  constexpr uint32_t sign = uint32_t{1} << 31;
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);
  return (bits & sign) != 0 ? bits : ~(bits | sign);
}

/// The token at which a running sum reaches its limit, and the sum at that token.
struct Reached {
  Candidate last;
  double sum;
};

/// Sums `measure` from the most likely token downwards until the sum is at least `limit`. Equally likely tokens follow
/// in the order of their ids. `candidates` must be sorted by id. This is a radix selection, because sorting 250,000
/// tokens takes 60 ms.
template <class Measure>
Reached sum_until(std::span<const Candidate> candidates, double limit, const Measure& measure) {
  constexpr uint32_t digits = 1 << 11;
  std::vector<Candidate> same_digits;
  double before = 0;
  for (const int shift : {21, 10, 0}) {
    const auto digit = [shift](const Candidate& candidate) { return (candidate.rank >> shift) % digits; };
    std::array<double, digits> sums{};
    for (const Candidate& candidate : candidates) sums[digit(candidate)] += measure(candidate);
    uint32_t chosen = 0;
    double before_chosen = before, sum = before;
    for (uint32_t i = 0; i < digits && sum < limit; ++i) {
      if (sums[i] == 0) continue;  // rounding may put the limit above the total
      chosen = i;
      before_chosen = sum;
      sum += sums[i];
    }
    before = before_chosen;
    std::vector<Candidate> same;
    same.reserve(candidates.size());
    std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(same),
                 [&](const Candidate& candidate) { return digit(candidate) == chosen; });
    candidates = same_digits = std::move(same);
  }
  size_t last = 0;
  for (double sum = before; last < candidates.size() && sum < limit; ++last) before = sum += measure(candidates[last]);
  return {candidates[last - 1], before};
}

}  // namespace

void check_options(const GenerateOptions& options) {
  check_usage(options.max_tokens >= 0, "[generate] the number of tokens is {}, expected at least 0",
              options.max_tokens);
  check_usage(std::isfinite(options.temperature) && options.temperature >= 0,
              "[generate] the temperature is {}, expected at least 0", options.temperature);
  check_usage(options.top_p > 0 && options.top_p <= 1, "[generate] top_p is {}, expected above 0 and at most 1",
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
      fmt::format("[generate] the logit of token {} is {}, expected a finite number: the model overflows because "
                  "its weights are too large",
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
  std::vector<Candidate> candidates;
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (id != banned) candidates.push_back({0, rank_of(logits[i]), id});
  }
  check(!candidates.empty(), "[generate] the vocabulary is empty, expected at least one token");
  const int32_t best = std::min_element(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) {
                         return a.rank < b.rank;
                       })->id;
  if (options.temperature == 0) return best;
  const auto highest = static_cast<double>(logits[static_cast<size_t>(best)]);
  check(std::isfinite(highest), "[generate] the model's logits are not finite");

  // Each limit keeps the most likely tokens, so the sum of the kept weights determines which tokens are kept.
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < candidates.size()) {
    const Candidate last = sum_until(candidates, options.top_k, [](const Candidate&) { return 1.0; }).last;
    std::erase_if(candidates, [&](const Candidate& candidate) {
      return std::pair(candidate.rank, candidate.id) > std::pair(last.rank, last.id);
    });
  }
  double total = 0, total_of_min_p = 0;
  for (Candidate& candidate : candidates) {
    const auto logit = static_cast<double>(logits[static_cast<size_t>(candidate.id)]);
    candidate.weight = std::exp((logit - highest) / options.temperature);
    total += candidate.weight;
    if (candidate.weight >= options.min_p) total_of_min_p += candidate.weight;
  }
  const auto weight = [](const Candidate& candidate) { return candidate.weight; };
  if (options.top_p < 1) total = sum_until(candidates, options.top_p * total, weight).sum;
  total = std::min(total, total_of_min_p);
  // The drawn token is the first one at which the running sum exceeds the drawn fraction of the total.
  const double drawn = static_cast<double>(random.uniform(draw)) * total;
  return sum_until(candidates, std::nextafter(drawn, total + 1), weight).last.id;
}

}  // namespace alibi::generation
