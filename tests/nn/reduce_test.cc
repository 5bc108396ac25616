#include "nn/reduce.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "testing.h"

namespace alibi::nn {
namespace {

TEST(ColumnSums, OfManyRowsAreAddedToWhatIsThere) {
  for (const int64_t rows : {1, 63, 64, 65, 1000, 20000}) {
    const Tensor x = test::random_tensor({rows, 37}, static_cast<uint64_t>(rows));
    std::vector<double> expected(37, 0.5);
    const std::vector<double> values = test::doubles(x);
    for (size_t i = 0; i < values.size(); ++i) expected[i % 37] += values[i];
    Tensor sums({37});
    sums.fill(0.5f);
    nn::add_column_sums(x, sums);
    EXPECT_TRUE(test::relative_diff(test::doubles(sums), expected) <= 1e-5) << rows;
  }
}

TEST(ColumnSums, ErrorsTellWhatWasFound) {
  Tensor sums({4});
  const auto message = [&](const Tensor& x) { return test::message_of([&] { nn::add_column_sums(x, sums); }); };
  EXPECT_NE(message(Tensor({4})).find("x is float32 [4] with strides [1], expected two axes"), std::string::npos);
  EXPECT_NE(message(Tensor({3, 4}, DType::int32)).find("x is int32 [3, 4]"), std::string::npos);
  const Tensor columns = Tensor::view(sums.raw(), {2, 2}, DType::float32, {1, 2});
  EXPECT_NE(message(columns).find("strides [1, 2], expected two axes and a unit inner stride"), std::string::npos);
  EXPECT_NE(message(Tensor({3, 5})).find("sums is"), std::string::npos);
}

}  // namespace
}  // namespace alibi::nn
