// Which keys of a long text are enough for some of its queries, so that attention needs only these keys in memory. The
// bound is that of the skip rule (docs/explanation/skip-rule.md), for blocks of keys of which only the norms are known.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/skip/rule.h"
#include "core/parallel.h"

namespace alibi::kernels {

class FarKeys {
 public:
  /// Keys are measured in blocks of this many rows. Ranges of keys begin with a block, and end with a block or with the
  /// text.
  static constexpr int64_t block_rows = 512;

  /// Whether the weight of far keys has a bound: there is a tolerance, no softcap and no gates, and the bias of each
  /// direction of each head falls, or the direction is closed.
  static bool are_bounded(const AttentionOptions& options);

  /// The options of attention over the whole text. Throws Error unless are_bounded().
  FarKeys(const AttentionOptions& options, int64_t heads, int64_t kv_heads, int64_t head_dim);

  /// Adds the next keys [1, n, kv_heads, head_dim], float32 or bfloat16. n is a multiple of block_rows, except at the
  /// end of the text. All keys are added before the first call of needed().
  void add(const Tensor& k);

  /// The options of attention over some of the keys. The tolerance is half of the whole one: the kernel uses one half,
  /// and the keys outside of the range the other.
  AttentionOptions options_within(int64_t first_query, const Range& range) const;

  /// Where to begin for queries at these positions: the range that the last queries needed, and a block on each side.
  Range expected(const Range& queries) const;

  /// The smallest range of keys such that the weights of all others sum to at most half of the tolerance times the
  /// weights of the keys that were read. q [1, n, heads, head_dim] are the queries from position `first` on; lse [1,
  /// heads, n] is the log-sum-exp over the keys that were read.
  Range needed(const Tensor& q, int64_t first, const Tensor& lse);

 private:
  /// Keys on one side of the queries.
  struct Reach {
    std::vector<std::vector<float>> farther;  // [kv_heads][blocks]: largest radius in a block and those farther away
    int64_t blocks = 0;                       // that the last queries needed
  };
  /// Neighbouring queries of a head: the largest of their norms, and the smallest of their log-sum-exps, each less the
  /// score of the centre.
  struct Queries {
    int64_t first = 0, last = 0;
    SkipRow<double> row;
  };

  Queries reduced(const Tensor& q, const Tensor& lse, int64_t begin, int64_t end, int64_t head) const;
  /// Whether the keys of `block`, which begins at this distance, and of all blocks farther away weigh little enough.
  bool negligible(const Queries& queries, Side side, int64_t head, int64_t block, int64_t distance) const;
  int64_t blocks() const { return core::ceil_div(keys_, block_rows); }

  AttentionOptions options_;
  int64_t heads_, kv_heads_, head_dim_, keys_ = 0;
  double scale_;
  std::vector<double> centre_;             // [kv_heads][head_dim]
  std::vector<std::vector<float>> radii_;  // [kv_heads][blocks]: largest |k - centre|
  std::shared_ptr<const Biases> biases_;
  Reach before_, after_;
};

}  // namespace alibi::kernels
