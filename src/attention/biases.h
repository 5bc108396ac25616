// The biases of a call, made from its options: slopes, or a table by distance. T5's buckets are such a table, in which
// distances share rows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "alibi/attention.h"
#include "attention/bias/bias.h"
#include "attention/bias/linear.h"
#include "attention/bias/table.h"

namespace alibi::kernels {

/// The biases of all heads of a call.
struct Biases {
  std::vector<float> slopes_before, slopes_after;  ///< [sequences * heads], 0 without a linear bias; +infinity
                                                   ///< closes the direction
  bool slopes_per_sequence = false;                ///< whether dslopes is [sequences * heads] instead of [heads]
  bool slopes_symmetric = true;      ///< whether slopes_after is unset, so that dslopes sums both directions
  std::unique_ptr<BiasTable> table;  ///< null without a table

  int64_t heads = 0;
  std::vector<LinearBias> of_slopes;  ///< [sequences * heads]; empty with a table
  std::vector<TableBias> of_table;    ///< [heads]; empty without one
  const Bias& of(int64_t sequence, int64_t head) const {
    if (table != nullptr) return of_table[static_cast<size_t>(head)];
    return of_slopes[static_cast<size_t>(sequence * heads + head)];
  }
};

/// `sequences` is the number of packed sequences, or of batch entries. Throws Error that names the option. Messages
/// begin with `operation`.
Biases make_biases(const char* operation, const AttentionOptions& options, int64_t sequences, int64_t heads);

/// During its lifetime, calls in this thread share their biases if the biases are equal, as in the layers of a model.
/// The values of tables must not change meanwhile.
class ReuseBiases {
 public:
  ReuseBiases();
  ~ReuseBiases();
  ReuseBiases(const ReuseBiases&) = delete;
  ReuseBiases& operator=(const ReuseBiases&) = delete;

 private:
  friend std::shared_ptr<const Biases> biases_of(const char*, const AttentionOptions&, int64_t, int64_t);
  bool has(const AttentionOptions& options, int64_t sequences, int64_t heads) const;

  ReuseBiases* outer_;
  AttentionOptions
      options_;  // options of the shared biases; they keep the tables alive, so no other table can get the same address
  int64_t sequences_ = 0, heads_ = 0;
  std::shared_ptr<const Biases> biases_;
};

/// The result of make_biases(), shared with other calls during the lifetime of a ReuseBiases.
std::shared_ptr<const Biases> biases_of(const char* operation, const AttentionOptions& options, int64_t sequences,
                                        int64_t heads);

}  // namespace alibi::kernels
