#include "compare/bigram.h"

#include <algorithm>
#include <cmath>

#include "evaluate/checks.h"

namespace alibi::comparison {
namespace {

constexpr int64_t kMaxCounted = int64_t{1} << 22, kStretch = int64_t{1} << 16;
constexpr double kDiscount = 0.75;

class PairTable {
 public:
  PairTable(std::span<const int32_t> tokens, int64_t vocab_size)
      : times_(static_cast<size_t>(vocab_size)), firsts_(times_), followers_(times_) {
    for (const Segment& part : evaluation::spread_blocks(static_cast<int64_t>(tokens.size()), kMaxCounted, kStretch)) {
      for (int64_t i = part.begin; i < part.end; ++i) {
        const int32_t token = tokens[static_cast<size_t>(i)];
        ++times_[static_cast<size_t>(token)];
        ++total_;
        if (i > part.begin) pairs_.push_back(pair_of(tokens[static_cast<size_t>(i - 1)], token));
      }
    }
    std::sort(pairs_.begin(), pairs_.end());
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const auto first = static_cast<size_t>(pairs_[i] >> 32);
      ++firsts_[first];
      if (i == 0 || pairs_[i] != pairs_[i - 1]) ++followers_[first];
    }
  }

  /// Probability of a token that has no predecessor.
  double probability(int32_t token) const {
    return (times_[static_cast<size_t>(token)] + 0.5) / (total_ + 0.5 * static_cast<double>(times_.size()));
  }

  double probability(int32_t before, int32_t token) const {
    const double seen = firsts_[static_cast<size_t>(before)];
    if (seen == 0) return probability(token);
    const auto same = std::equal_range(pairs_.begin(), pairs_.end(), pair_of(before, token));
    const double of_pair = std::max(static_cast<double>(same.second - same.first) - kDiscount, 0.0);
    return (of_pair + kDiscount * followers_[static_cast<size_t>(before)] * probability(token)) / seen;
  }

 private:
  static uint64_t pair_of(int32_t first, int32_t second) {
    return uint64_t{static_cast<uint32_t>(first)} << 32 | static_cast<uint32_t>(second);
  }

  double total_ = 0;
  std::vector<double> times_;      // count of each token
  std::vector<double> firsts_;     // count of each token as the first of a pair
  std::vector<double> followers_;  // number of different successors of each token
  std::vector<uint64_t> pairs_;    // sorted
};

}  // namespace

double bigram_nll(std::span<const int32_t> train, std::span<const int32_t> held_out, const std::vector<Segment>& scored,
                  int64_t vocab_size) {
  const PairTable table(train, vocab_size);
  double sum = 0;
  int64_t count = 0;
  const std::vector<Segment> all{{0, std::ssize(held_out)}};
  for (const Segment& segment : scored.empty() ? all : scored) {
    for (int64_t i = segment.begin; i < segment.end; ++i, ++count) {
      const int32_t token = held_out[static_cast<size_t>(i)];
      sum -=
          std::log(i == 0 ? table.probability(token) : table.probability(held_out[static_cast<size_t>(i - 1)], token));
    }
  }
  return sum / static_cast<double>(count);
}

}  // namespace alibi::comparison
