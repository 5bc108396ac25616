// Scalable-Softmax (Nakanishi 2025, arXiv 2501.19399): the scores of a query that sees n keys are multiplied by s
// log(n), so that attention does not flatten in long texts. The factor is put into the queries.
#pragma once

#include <vector>

#include "alibi/tensor.h"

namespace alibi::nn {

struct ScoreScale {
  std::vector<float> of_heads;  ///< [heads]: s
  int64_t position = 0;         ///< of the first row; row i sees position + i + 1 keys
  int64_t window = 0;           ///< > 0: at most as many keys
};

/// q *= s[head] log(keys of the row); q [batch, length, heads, head_dim], float32 or bfloat16, any strides with a unit
/// inner stride.
void scale_queries(Tensor& q, const ScoreScale& scale);
/// dq *= the same factors, and ds [heads] += the gradient of s, for the scaled q. A head whose s is 0 gets no gradient.
void scale_queries_backward(const Tensor& q, const ScoreScale& scale, Tensor& dq, Tensor& ds);

}  // namespace alibi::nn
