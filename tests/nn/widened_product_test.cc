#include "nn/widened_product.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

#include "nn/framed.h"
#include "nn/onednn_engine.h"
#include "nn/reference.h"
#include "testing.h"

namespace alibi {
namespace {

using test::doubles;
using test::Framed;
using test::matmul_reference;
using test::random_tensor;
using test::relative_diff;

nn::Matrix matrix_of(const Framed& framed, bool transposed) {
  return {framed.inside.raw(), framed.inside.stride(0), transposed, framed.inside.dtype()};
}

/// The products' operands are rounded already, so only the sums differ, and a result that is rounded in the end.
TEST(WidenedProduct, IsTheProductOfWhatTheOperandsHold) {
  // Around the sizes of its blocks, 256 x 512 x 512.
  const int64_t sizes[][3] = {{1, 1, 1},    {2, 3, 5},     {255, 9, 17},   {257, 33, 7},
                              {5, 513, 40}, {3, 20, 1030}, {260, 520, 515}};
  uint64_t seed = 0;
  for (const auto& [m, n, k] : sizes) {
    for (int flags = 0; flags < 32; ++flags) {
      const bool transpose_a = flags & 1, transpose_b = flags & 2, accumulate = flags & 4;
      const DType type_of_c = flags & 8 ? DType::bfloat16 : DType::float32;
      const bool has_bias = flags & 16;
      const DType type_of_bias = flags & 1 ? DType::bfloat16 : DType::float32;
      SCOPED_TRACE(fmt::format("m {} n {} k {} flags {}", m, n, k, flags));
      const Framed a(transpose_a ? k : m, transpose_a ? m : k, ++seed, DType::bfloat16);
      const Framed b(transpose_b ? n : k, transpose_b ? k : n, ++seed, DType::bfloat16);
      Framed c(m, n, ++seed, type_of_c);
      const Tensor bias = random_tensor({n}, ++seed, 1, type_of_bias);
      auto expected = matmul_reference(doubles(a.inside), transpose_a, doubles(b.inside), transpose_b, m, n, k);
      const auto before = doubles(c.inside), shifts = doubles(bias);
      for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] += (accumulate ? before[i] : 0) + (has_bias ? shifts[i % static_cast<size_t>(n)] : 0);
      }
      nn::run_widened({.m = m,
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
      if (m * n * k > 100'000) flags += 4;  // fewer of the large ones
    }
  }
}

TEST(WidenedProduct, MemoryIsBounded) {
  const Tensor a = random_tensor({900, 1500}, 1, 1, DType::bfloat16),
               b = random_tensor({1500, 1300}, 2, 1, DType::bfloat16);
  Tensor c({900, 1300});
  const auto run = [&] {
    nn::run_widened({.m = 900,
                     .n = 1300,
                     .k = 1500,
                     .a = {a.raw(), 1500, false, DType::bfloat16},
                     .b = {b.raw(), 1300, false, DType::bfloat16},
                     .c = {c.raw(), 1300, false, DType::float32}});
  };
  reset_peak_tensor_bytes();
  const int64_t before = tensor_bytes();
  run();
  // Whole copies would be 13 MB.
  EXPECT_LE(peak_tensor_bytes() - before, 5'000'000);
  EXPECT_EQ(nn::bytes_to_widen(DType::float32), 0);
  EXPECT_EQ(nn::bytes_to_widen(DType::bfloat16) == 0, nn::has_products(DType::bfloat16));
}

}  // namespace
}  // namespace alibi
