// A bias that the keys choose (Forgetting Transformer, Lin et al. 2025). Key t of a head has a gate, log f_t <= 0, and
// the score of query i and key j has the sum of log f_t over t in (j, i], which is 0 for the query's own key. A gate of
// -infinity begins a document: queries from its key on do not see the keys before it. ALiBi is log f_t = -slope.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "alibi/tensor.h"

namespace alibi::kernels {

/// The gates of one head of one sequence: their sums, in which -infinity counts as 0, and where documents begin. A
/// query past the last key counts as one at the last key.
class HeadDecay {
 public:
  HeadDecay() = default;
  /// The arrays begin with key `first`.
  HeadDecay(const double* high, const double* low, const int32_t* documents, int64_t first, int64_t keys)
      : high_(high), low_(low), documents_(documents), first_(first), keys_(keys) {}

  /// False for a head without gates.
  explicit operator bool() const { return keys_ > 0; }

  int64_t key_of(int64_t position) const { return std::clamp<int64_t>(position, first_, keys_ - 1); }
  /// The first key of the document of a position.
  int64_t document(int64_t position) const { return documents_[key_of(position) - first_]; }
  /// The sum of the gates over (from, to], or minus that over (to, from].
  double sum(int64_t from, int64_t to) const {
    const int64_t i = key_of(to) - first_, j = key_of(from) - first_;
    return (high_[i] - high_[j]) + (low_[i] - low_[j]);
  }
  /// By how much the gates weaken keys at `key` and before it until they reach `to`, a later key: minus the sum over
  /// (key, to], or infinity if a document begins between.
  double fall(int64_t key, int64_t to) const { return document(to) > key_of(key) ? HUGE_VAL : -sum(key, to); }
  /// values[i] = unit * sum(from, first + i)
  void sums(int64_t from, int64_t first, int64_t count, double unit, float* values) const;
  /// The two parts of the running sum of a key, and those of the keys after it.
  struct Parts {
    const double *high, *low;
  };
  Parts parts(int64_t key) const { return {high_ + (key_of(key) - first_), low_ + (key_of(key) - first_)}; }
  bool has(int64_t first, int64_t last) const { return first_ <= first && last < keys_; }

 private:
  const double *high_ = nullptr, *low_ = nullptr;  // each running sum is high + low, so that its differences are exact
  const int32_t* documents_ = nullptr;             // to float64, whatever came before
  int64_t first_ = 0, keys_ = 0;
};

/// Whether differences of these sums, in log2 units, would lose digits: of a tile on the diagonal, which has no key
/// between its queries and its keys to count from. Each pair is then summed by itself. The sums fall.
inline bool differences_lose_digits(std::span<const float> of_queries, std::span<const float> of_keys) {
  constexpr float precise_enough = 8;
  const float least = std::min(of_queries.back(), of_keys.back());
  return !(std::max(of_keys.front(), 0.0f) - least < precise_enough);
}

/// The gates of a call, or of the keys of a cache.
class Decays {
 public:
  /// The rows of a sequence's keys in the tensor.
  struct KeyRows {
    int64_t batch = 0, first = 0, count = 0;
  };
  Decays() = default;
  /// `log_decay` is float32 [batch, keys, heads]. Throws Error that names a gate that is not a number from -2^40 to 0
  /// or -infinity.
  Decays(const char* operation, const Tensor& log_decay, const std::vector<KeyRows>& sequences);

  /// Adds the gates [batch, new keys, heads] of the next keys of each sequence, which are the batch entries. Throws as
  /// above, and then changes nothing.
  void append(const char* operation, const Tensor& log_decay);
  /// Removes all but the first `keys` keys of each sequence.
  void truncate(int64_t keys);
  /// Removes the keys before `first`, which no query will see.
  void evict(int64_t first);
  /// The gates of the keys from `first` on, as they were given: float32 [sequences, keys - first, heads]. The sequences
  /// have the same number of keys. The gate of the first key has no effect, and is 0.
  Tensor gates(int64_t first) const;

  int64_t heads() const { return heads_; }
  int64_t bytes() const;
  HeadDecay head(int64_t sequence, int64_t head) const {
    const Head& of = all_[static_cast<size_t>(sequence * heads_ + head)];
    return {of.high.data(), of.low.data(), of.documents.data(), first_, first_ + std::ssize(of.high)};
  }

 private:
  struct Head {
    std::vector<double> high, low;
    std::vector<int32_t> documents;
  };
  void add(const char* operation, const Tensor& log_decay, const std::vector<KeyRows>& sequences);

  int64_t heads_ = 0, first_ = 0;
  std::vector<Head> all_;  // [sequences][heads]
};

}  // namespace alibi::kernels
