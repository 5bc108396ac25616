#include "nn/random_fill.h"

#include "core/parallel.h"
#include "nn/shape.h"

namespace alibi::nn {
namespace {

template <class Draw>
void fill(const char* operation, Tensor& y, const Draw& draw) {
  check_vector(operation, "y", y, y.elements(), DType::float32);
  float* to = y.data<float>();
  core::parallel_ranges(y.elements(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = draw(static_cast<uint64_t>(i));
  });
}

}  // namespace

void fill_normal(const core::Random& random, float deviation, Tensor& y) {
  fill("fill_normal", y, [&](uint64_t i) { return deviation * random.normal(i); });
}

void fill_uniform(const core::Random& random, float bound, Tensor& y) {
  fill("fill_uniform", y, [&](uint64_t i) { return bound * (2 * random.uniform(i) - 1); });
}

}  // namespace alibi::nn
