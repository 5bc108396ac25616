// What is known of rows before they are multiplied: bounds on norms, and the largest magnitude.
#include "attention/amx/pack.h"

#include "attention/amx/cases.h"

namespace alibi::kernels {
namespace {

using namespace test;

kernels::amx::Source source_of(const Tensor& rows) {
  return {static_cast<const uint16_t*>(rows.raw()), rows.stride(0), rows.size(0), rows.size(1)};
}

using AmxPack = AttentionAmx;

TEST_P(AmxPack, NormsAreBoundedFromAboveClosely) {
  for (const int64_t columns : {1, 17, 32, 64, 255}) {
    for (const int64_t rows : {1, 31, 32}) {
      const Tensor all = random_tensor({rows, columns}, static_cast<uint64_t>(columns), 3, DType::bfloat16);
      const std::vector<double> values = doubles(all);
      alignas(64) float norms[32];
      const float largest = kernels::amx::row_norms(source_of(all), norms);
      double most = 0;
      for (int64_t row = 0; row < rows; ++row) {
        double squares = 0;
        for (int64_t c = 0; c < columns; ++c) squares += std::pow(values[static_cast<size_t>(row * columns + c)], 2);
        const double norm = std::sqrt(squares), bound = static_cast<double>(norms[row]);
        EXPECT_TRUE(bound >= norm && bound <= norm * (1 + 0x1p-13)) << bound << " of " << norm;
        most = std::max(most, bound);
      }
      EXPECT_EQ(static_cast<double>(largest), most);
    }
  }
}

TEST_P(AmxPack, TheLargestIsFoundInEveryPlace) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const int64_t columns : {1, 31, 64}) {
    for (const int64_t rows : {1, 32}) {
      for (int64_t column = 0; column < columns; ++column) {
        Tensor all = random_tensor({rows, columns}, 1, 1, DType::bfloat16);
        Tensor place = all.slice(0, rows - 1, rows).slice(1, column, column + 1);
        for (const float value : {64.0f, -64.0f, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
          place.fill(value);
          EXPECT_EQ(kernels::amx::largest(source_of(all)), std::abs(value) == 64 ? 64 : infinity) << column;
        }
      }
    }
  }
}

ALIBI_TEST_ON_BF16_ISAS(AmxPack);

}  // namespace
}  // namespace alibi::kernels
