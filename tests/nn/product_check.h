// Products on the calling thread against the float64 reference.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "nn/framed.h"
#include "nn/products.h"
#include "nn/reference.h"
#include "testing.h"

namespace alibi::test {

inline nn::Matrix matrix_of(const Framed& framed, bool transposed) {
  return {framed.inside.raw(), framed.inside.stride(0), transposed, framed.inside.dtype()};
}

/// Operands of this type, transposed or not, with and without a bias, added to c or not, into c of either type; of
/// large products fewer of these. The operands are rounded already, so only the sums differ, and what is rounded in the
/// end.
inline void expect_product(const std::function<void(const nn::Product&)>& run, int64_t m, int64_t n, int64_t k,
                           DType dtype) {
  uint64_t seed = static_cast<uint64_t>(m * n * k);
  for (int flags = 0; flags<32; flags += m * n * k> 100'000 ? 5 : 1) {
    const bool transpose_a = flags & 1, transpose_b = flags & 2, accumulate = flags & 4;
    const DType type_of_c = flags & 8 ? dtype : DType::float32;
    const bool has_bias = flags & 16;
    const DType type_of_bias = flags & 1 ? DType::bfloat16 : DType::float32;
    SCOPED_TRACE(fmt::format("m {} n {} k {} flags {}", m, n, k, flags));
    const Framed a(transpose_a ? k : m, transpose_a ? m : k, ++seed, dtype);
    const Framed b(transpose_b ? n : k, transpose_b ? k : n, ++seed, dtype);
    Framed c(m, n, ++seed, type_of_c);
    const Tensor bias = random_tensor({n}, ++seed, 1, type_of_bias);
    auto expected = matmul_reference(doubles(a.inside), transpose_a, doubles(b.inside), transpose_b, m, n, k);
    const auto before = doubles(c.inside), shifts = doubles(bias);
    for (size_t i = 0; i < expected.size(); ++i) {
      expected[i] += (accumulate ? before[i] : 0) + (has_bias ? shifts[i % static_cast<size_t>(n)] : 0);
    }
    run({.m = m,
         .n = n,
         .k = k,
         .a = matrix_of(a, transpose_a),
         .b = matrix_of(b, transpose_b),
         .c = matrix_of(c, false),
         .bias = has_bias ? bias.raw() : nullptr,
         .bias_dtype = type_of_bias,
         .accumulate = accumulate});
    EXPECT_TRUE(relative_diff(doubles(c.inside), expected) <= (type_of_c == DType::float32 ? 2e-6 : 0x1p-8));
    EXPECT_TRUE(c.frame_is_intact());
  }
}

}  // namespace alibi::test
