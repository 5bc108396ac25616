#include "generate/sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/parallel.h"

namespace alibi::generation {
namespace {

struct Candidate {
  double weight;  // relative to that of the most likely token
  uint32_t rank;  // smaller for larger logits
  int32_t id;
};

/// Number of tokens in a task of a parallel loop.
constexpr int64_t grain = 1 << 14;

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

/// Sums of `measure` from the most likely token downwards. Equally likely tokens follow in the order of their ids.
/// `candidates` must be sorted by id. This is a radix selection, because sorting 250,000 tokens takes 60 ms.
template <class Measure>
class SumsByRank {
 public:
  SumsByRank(std::span<const Candidate> candidates, const Measure& measure)
      : candidates_(candidates), measure_(measure), sums_(sums_of(candidates, shifts[0])) {}

  double total() const { return std::accumulate(sums_.begin(), sums_.end(), 0.0); }

  /// The first token at which the sum is at least `limit`.
  Reached until(double limit) const {
    std::span<const Candidate> candidates = candidates_;
    std::vector<Candidate> same_digits;
    Digits sums = sums_;
    double before = 0;
    for (const int shift : shifts) {
      if (shift != shifts[0]) sums = sums_of(candidates, shift);
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
                   [&](const Candidate& candidate) { return digit(candidate, shift) == chosen; });
      candidates = same_digits = std::move(same);
    }
    size_t last = 0;
    for (double sum = before; last < candidates.size() && sum < limit; ++last) {
      before = sum += measure_(candidates[last]);
    }
    return {candidates[last - 1], before};
  }

 private:
  static constexpr uint32_t digits = 1 << 11;
  static constexpr std::array<int, 3> shifts{21, 10, 0};
  using Digits = std::vector<double>;

  static uint32_t digit(const Candidate& candidate, int shift) { return (candidate.rank >> shift) % digits; }

  /// The sum of `measure` over the candidates with each digit.
  Digits sums_of(std::span<const Candidate> candidates, int shift) const {
    const auto count = static_cast<int64_t>(candidates.size());
    std::vector<Digits> of_tasks(static_cast<size_t>(core::ceil_div(count, grain)), Digits(digits));
    core::parallel_ranges(count, grain, [&](int64_t begin, int64_t end) {
      Digits& sums = of_tasks[static_cast<size_t>(begin / grain)];
      for (int64_t i = begin; i < end; ++i) {
        const Candidate& candidate = candidates[static_cast<size_t>(i)];
        sums[digit(candidate, shift)] += measure_(candidate);
      }
    });
    Digits total = std::move(of_tasks.front());
    for (size_t task = 1; task < of_tasks.size(); ++task) {
      for (uint32_t i = 0; i < digits; ++i) total[i] += of_tasks[task][i];
    }
    return total;
  }

  std::span<const Candidate> candidates_;
  Measure measure_;
  Digits sums_;
};

/// The most likely token but `banned`; of equally likely ones, that with the lowest id.
int32_t most_likely(std::span<const float> logits, int32_t banned) {
  const auto count = std::ssize(logits);
  std::vector<int32_t> of_tasks(static_cast<size_t>(core::ceil_div(count, grain)), -1);
  const auto better = [&](int32_t id, int32_t best) {
    return best < 0 || logits[static_cast<size_t>(id)] > logits[static_cast<size_t>(best)];
  };
  core::parallel_ranges(count, grain, [&](int64_t begin, int64_t end) {
    int32_t best = -1;
    for (auto id = static_cast<int32_t>(begin); id < end; ++id) {
      if (id != banned && better(id, best)) best = id;
    }
    of_tasks[static_cast<size_t>(begin / grain)] = best;
  });
  int32_t best = -1;
  for (const int32_t id : of_tasks) {
    if (id >= 0 && better(id, best)) best = id;
  }
  return best;
}

/// All tokens but `banned`, sorted by id.
std::vector<Candidate> candidates_of(std::span<const float> logits, double highest, double temperature,
                                     int32_t banned) {
  const auto size = std::ssize(logits);
  const int64_t skipped = banned >= 0 && banned < size ? banned : size;
  std::vector<Candidate> candidates(static_cast<size_t>(skipped < size ? size - 1 : size));
  core::parallel_ranges(std::ssize(candidates), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t id = i < skipped ? i : i + 1;
      const float logit = logits[static_cast<size_t>(id)];
      candidates[static_cast<size_t>(i)] = {std::exp((static_cast<double>(logit) - highest) / temperature),
                                            rank_of(logit), static_cast<int32_t>(id)};
    }
  });
  return candidates;
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
  const int32_t best = most_likely(logits, banned);
  check(best >= 0, "[generate] the vocabulary is empty, expected at least one token");
  if (options.temperature == 0) return best;
  const auto highest = static_cast<double>(logits[static_cast<size_t>(best)]);
  check(std::isfinite(highest), "[generate] the model's logits are not finite");
  std::vector<Candidate> candidates = candidates_of(logits, highest, options.temperature, banned);

  // Each limit keeps the most likely tokens, so the sum of the kept weights determines which tokens are kept.
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < candidates.size()) {
    const Candidate last = SumsByRank(candidates, [](const Candidate&) { return 1.0; }).until(options.top_k).last;
    std::erase_if(candidates, [&](const Candidate& candidate) {
      return std::pair(candidate.rank, candidate.id) > std::pair(last.rank, last.id);
    });
  }
  const SumsByRank sums(candidates, [](const Candidate& candidate) { return candidate.weight; });
  double total = sums.total();
  if (options.top_p < 1) total = sums.until(options.top_p * total).sum;
  if (options.min_p > 0) {
    double total_of_min_p = 0;
    for (const Candidate& candidate : candidates) {
      if (candidate.weight >= options.min_p) total_of_min_p += candidate.weight;
    }
    total = std::min(total, total_of_min_p);
  }
  // The drawn token is the first one at which the running sum exceeds the drawn fraction of the total.
  const double drawn = static_cast<double>(random.uniform(draw)) * total;
  return sums.until(std::nextafter(drawn, total + 1)).last.id;
}

}  // namespace alibi::generation
