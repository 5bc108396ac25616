#include "generate/sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/parallel.h"
#include "nn/softmax.h"

namespace alibi::generation {
namespace {

struct Candidate {
  double weight;  // relative to that of the most likely token
  uint32_t rank;  // smaller for larger logits
  int32_t id;

  std::pair<uint32_t, int32_t> order() const { return {rank, id}; }
};

/// Number of tokens in a task of a parallel loop.
constexpr int64_t grain = 1 << 14;

/// The bits of a float as an unsigned integer that falls as the float rises. Both zeros have the same rank.
uint32_t rank_of(float logit) {
  constexpr uint32_t sign = uint32_t{1} << 31;
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);
  return (bits & sign) != 0 ? bits : ~(bits | sign);
}

/// The tokens that can be drawn: all but `banned` and those that are less likely than `last`.
struct Vocabulary {
  std::span<const float> logits;
  double highest, temperature;  ///< the weight of a token is exp((logit - highest) / temperature)
  int32_t banned;
  bool counts = false;  ///< every weight is 1 instead
  std::optional<Candidate> last = {};

  int64_t tasks() const { return core::ceil_div(std::ssize(logits), grain); }

  /// Calls use(task, candidates) in parallel with the tokens whose rank is wanted, in each task in the order of their
  /// ids.
  template <class Wanted, class Use>
  void each(const Wanted& wanted, const Use& use) const {
    constexpr int64_t together = 512;
    core::parallel_ranges(std::ssize(logits), grain, [&](int64_t begin, int64_t end) {
      std::array<Candidate, together> candidates;
      std::array<float, together> kept;
      std::array<double, together> weights;
      weights.fill(1);
      for (int64_t from = begin; from < end; from += together) {
        size_t count = 0;
        for (int64_t i = from; i < std::min(end, from + together); ++i) {
          const float logit = logits[static_cast<size_t>(i)];
          const Candidate candidate{0, rank_of(logit), static_cast<int32_t>(i)};
          if (!wanted(candidate.rank) || i == banned || (last && candidate.order() > last->order())) continue;
          candidates[count] = candidate;
          kept[count++] = logit;
        }
        if (!counts) {
          nn::softmax_numerators(std::span(kept).first(count), highest, temperature, std::span(weights).first(count));
        }
        for (size_t i = 0; i < count; ++i) candidates[i].weight = weights[i];
        use(static_cast<size_t>(begin / grain), std::span<const Candidate>(candidates).first(count));
      }
    });
  }
};

/// The token at which a running sum reaches its limit, and the sum at that token.
struct Reached {
  Candidate last;
  double sum;
};

/// Sums of weights from the most likely token downwards. Equally likely tokens follow in the order of their ids. This
/// is a radix selection, because sorting 250,000 tokens takes 60 ms.
class SumsByRank {
 public:
  /// `least`: see total_from_least().
  explicit SumsByRank(const Vocabulary& vocabulary, double least = 0) : vocabulary_(vocabulary), sums_(digits) {
    // Neighbouring tokens often have the same digit, so each second one is added to other sums.
    std::vector<Digits> of_tasks(static_cast<size_t>(vocabulary.tasks()), Digits(2 * digits));
    Digits from_least(of_tasks.size());
    vocabulary.each([](uint32_t) { return true; },
                    [&](size_t task, std::span<const Candidate> candidates) {
                      double* const sums = of_tasks[task].data();
                      double likely = 0;
                      for (size_t i = 0; i < candidates.size(); ++i) {
                        const Candidate& candidate = candidates[i];
                        sums[i % 2 * digits + digit(candidate.rank, shifts[0])] += candidate.weight;
                        likely += candidate.weight >= least ? candidate.weight : 0;
                      }
                      from_least[task] += likely;
                    });
    for (const Digits& sums : of_tasks) {
      for (uint32_t i = 0; i < digits; ++i) sums_[i] += sums[i] + sums[digits + i];
    }
    total_from_least_ = std::accumulate(from_least.begin(), from_least.end(), 0.0);
  }

  double total() const { return std::accumulate(sums_.begin(), sums_.end(), 0.0); }
  /// The sum of the weights that are at least `least`.
  double total_from_least() const { return total_from_least_; }

  /// The first token at which the sum is at least `limit`.
  Reached until(double limit) const {
    double before = 0;
    std::vector<Candidate> candidates = candidates_of(choose(sums_, limit, before));
    for (const int shift : {shifts[1], shifts[2]}) {
      Digits sums(digits);
      for (const Candidate& candidate : candidates) sums[digit(candidate.rank, shift)] += candidate.weight;
      const uint32_t chosen = choose(sums, limit, before);
      std::erase_if(candidates, [&](const Candidate& candidate) { return digit(candidate.rank, shift) != chosen; });
    }
    size_t last = 0;
    for (double sum = before; last < candidates.size() && sum < limit; ++last) before = sum += candidates[last].weight;
    return {candidates[last - 1], before};
  }

 private:
  static constexpr uint32_t digits = 1 << 11;
  static constexpr std::array<int, 3> shifts{21, 10, 0};
  using Digits = std::vector<double>;

  static uint32_t digit(uint32_t rank, int shift) { return (rank >> shift) % digits; }

  /// The digit at which the sum reaches the limit. Adds the sums of the digits before it to `before`.
  static uint32_t choose(const Digits& sums, double limit, double& before) {
    uint32_t chosen = 0;
    double before_chosen = before, sum = before;
    for (uint32_t i = 0; i < digits && sum < limit; ++i) {
      if (sums[i] == 0) continue;  // rounding may put the limit above the total
      chosen = i;
      before_chosen = sum;
      sum += sums[i];
    }
    before = before_chosen;
    return chosen;
  }

  /// The tokens with this first digit, sorted by id.
  std::vector<Candidate> candidates_of(uint32_t first_digit) const {
    std::vector<std::vector<Candidate>> of_tasks(static_cast<size_t>(vocabulary_.tasks()));
    vocabulary_.each([&](uint32_t rank) { return digit(rank, shifts[0]) == first_digit; },
                     [&](size_t task, std::span<const Candidate> candidates) {
                       of_tasks[task].insert(of_tasks[task].end(), candidates.begin(), candidates.end());
                     });
    std::vector<Candidate> all;
    for (const auto& some : of_tasks) all.insert(all.end(), some.begin(), some.end());
    return all;
  }

  Vocabulary vocabulary_;
  Digits sums_;
  double total_from_least_ = 0;
};

/// The most likely token but `banned`; of equally likely ones, that with the lowest id. -1 if there is none.
int32_t most_likely(std::span<const float> logits, int32_t banned) {
  const size_t left_out = banned >= 0 ? std::min(static_cast<size_t>(banned), logits.size()) : logits.size();
  const std::span<const float> before = logits.first(left_out);
  const std::span<const float> after = logits.subspan(std::min(left_out + 1, logits.size()));
  const float largest = std::max(nn::largest(before), nn::largest(after));
  if (const auto at = std::find(before.begin(), before.end(), largest); at != before.end()) {
    return static_cast<int32_t>(at - before.begin());
  }
  const auto at = std::find(after.begin(), after.end(), largest);
  return at != after.end() ? static_cast<int32_t>(left_out + 1) + static_cast<int32_t>(at - after.begin()) : -1;
}

}  // namespace

void check_options(const GenerateOptions& options, int vocab_size) {
  check_usage(options.max_tokens >= 0, "[generate] max_tokens is {}, expected at least 0", options.max_tokens);
  check_usage(std::isfinite(options.temperature) && options.temperature >= 0,
              "[generate] the temperature is {}, expected at least 0", options.temperature);
  check_usage(options.top_p > 0 && options.top_p <= 1, "[generate] top_p is {}, expected above 0 and at most 1",
              options.top_p);
  check_usage(options.top_k >= 0, "[generate] top_k is {}, expected at least 0", options.top_k);
  check_usage(options.min_p >= 0 && options.min_p <= 1, "[generate] min_p is {}, expected 0 to 1", options.min_p);
  check_usage(std::isfinite(options.repetition_penalty) && options.repetition_penalty > 0,
              "[generate] repetition_penalty is {}, expected above 0", options.repetition_penalty);
  for (const auto& [name, penalty] : {std::pair{"presence_penalty", options.presence_penalty},
                                      std::pair{"frequency_penalty", options.frequency_penalty}}) {
    check_usage(std::isfinite(penalty), "[generate] {} is {}, expected a finite number", name, penalty);
  }
  for (const auto& [id, bias] : options.logit_bias) {
    check_usage(id >= 0 && id < vocab_size, "[generate] logit_bias has the token {}, expected 0 to {}", id,
                vocab_size - 1);
    check_usage(std::isfinite(bias), "[generate] logit_bias of token {} is {}, expected a finite number", id, bias);
  }
  for (const std::string& stop : options.stop) {
    check_usage(!stop.empty(), "[generate] a stop string is empty, expected at least one byte");
  }
}

void check_logits(std::span<const float> logits) {
  // Without a branch in the loop, so that the compiler uses vectors.
  constexpr uint32_t exponent = 0x7f800000;
  uint32_t any = 0;
  for (const float logit : logits)
    any |= static_cast<uint32_t>((std::bit_cast<uint32_t>(logit) & exponent) == exponent);
  if (any == 0) return;
  const auto bad = std::find_if(logits.begin(), logits.end(), [](float x) { return !std::isfinite(x); });
  throw NotFiniteError(
      fmt::format("[generate] the logit of token {} is {}, expected a finite number: the model overflows because "
                  "its weights are too large, or because a cache of type q8_0 holds only keys and values below 8.32 "
                  "million (--cache-type bf16 holds them)",
                  bad - logits.begin(), *bad));
}

Penalties::Penalties(const GenerateOptions& options, std::span<const int32_t> prompt)
    : options_(options),
      counts_tokens_(options.repetition_penalty != 1 || options.presence_penalty != 0 ||
                     options.frequency_penalty != 0) {
  if (options.repetition_penalty == 1) return;
  for (const int32_t id : prompt) drawn_[id] = 0;
}

std::span<const float> Penalties::apply(std::span<const float> logits) {
  if (drawn_.empty() && options_.logit_bias.empty()) return logits;
  changed_.assign(logits.begin(), logits.end());
  for (const auto& [id, bias] : options_.logit_bias) changed_[static_cast<size_t>(id)] += bias;
  for (const auto& [id, count] : drawn_) {
    float& changed = changed_[static_cast<size_t>(id)];
    const double penalty = options_.repetition_penalty;
    double logit = static_cast<double>(changed);
    logit = logit > 0 ? logit / penalty : logit * penalty;
    if (count > 0) logit -= options_.presence_penalty + static_cast<double>(count) * options_.frequency_penalty;
    changed = static_cast<float>(logit);
  }
  return changed_;
}

void Penalties::add(int32_t token) {
  if (counts_tokens_) ++drawn_[token];
}

int32_t sample_token(std::span<const float> logits, const GenerateOptions& options, const core::Random& random,
                     uint64_t draw, int32_t banned) {
  const int32_t best = most_likely(logits, banned);
  check(best >= 0,
        "[generate] the vocabulary has no token that can be drawn, expected at least one with a finite logit");
  if (options.temperature == 0) return best;
  const auto highest = static_cast<double>(logits[static_cast<size_t>(best)]);
  check(std::isfinite(highest), "[generate] the model's logits are not finite");
  Vocabulary vocabulary{logits, highest, options.temperature, banned};

  // Each limit keeps the most likely tokens, so the sum of the kept weights determines which tokens are kept.
  if (options.top_k > 0 && options.top_k < std::ssize(logits)) {
    vocabulary.counts = true;
    vocabulary.last = SumsByRank(vocabulary).until(options.top_k).last;
    vocabulary.counts = false;
  }
  const SumsByRank sums(vocabulary, options.min_p);
  double total = sums.total();
  if (options.top_p < 1) total = sums.until(options.top_p * total).sum;
  if (options.min_p > 0) total = std::min(total, sums.total_from_least());
  // The drawn token is the first one at which the running sum exceeds the drawn fraction of the total.
  const double drawn = static_cast<double>(random.uniform(draw)) * total;
  return sums.until(std::nextafter(drawn, total + 1)).last.id;
}

}  // namespace alibi::generation
