#include "nn/embedding.h"

#include <gtest/gtest.h>

#include <vector>

#include "alibi/error.h"
#include "testing.h"

namespace alibi::nn {
namespace {

using test::doubles;
using test::random_ids;
using test::random_tensor;

TEST(Embedding, LooksUpAndScales) {
  test::for_each_isa([] {
    for (const int64_t d : {1, 7, 33, 64}) {
      const Tensor ids = random_ids({3, 5}, 1, 11), table = random_tensor({11, d}, 2);
      Tensor y({3, 5, d});
      nn::embedding(ids, table, 3, y);
      const auto entries = doubles(table);
      std::vector<double> expected;
      for (const int32_t id : ids.to_ints()) {
        for (int64_t i = 0; i < d; ++i) expected.push_back(3 * entries[static_cast<size_t>(id * d + i)]);
      }
      EXPECT_TRUE(test::max_abs_diff(y, expected) <= 1e-6);
    }
  });
}

TEST(Embedding, BackwardAddsEveryRowToItsEntry) {
  test::for_each_isa([] {
    const int64_t rows = 200, vocab = 9, d = 70;  // every id occurs often; several tasks of columns
    const Tensor ids = random_ids({rows}, 1, vocab), dy = random_tensor({rows, d}, 2);
    Tensor dtable = random_tensor({vocab, d}, 3);
    std::vector<double> expected = doubles(dtable);
    const auto gradient = doubles(dy);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t id = ids.to_ints()[static_cast<size_t>(row)];
      for (int64_t i = 0; i < d; ++i) {
        expected[static_cast<size_t>(id * d + i)] += 0.5 * gradient[static_cast<size_t>(row * d + i)];
      }
    }
    nn::embedding_backward(dy, ids, 0.5f, dtable);
    EXPECT_TRUE(test::relative_diff(doubles(dtable), expected) <= 2e-6);
  });
}

TEST(Embedding, SameBitsAtAnyThreadCountAndInBfloat16) {
  const Tensor ids = random_ids({700}, 1, 50), table = random_tensor({50, 96}, 2), dy = random_tensor({700, 96}, 3);
  test::expect_same_bits_at_any_thread_count([&] {
    Tensor y({700, 96}), narrow({700, 96}, DType::bfloat16), dtable({50, 96});
    nn::embedding(ids, table, 2, y);
    nn::embedding(ids, table.to(DType::bfloat16), 2, narrow);
    EXPECT_TRUE(test::same_bits(narrow, y.to(DType::bfloat16)));
    nn::embedding_backward(dy, ids, 2, dtable);
    return std::vector<Tensor>{y, dtable};
  });
}

TEST(Embedding, IdsOutsideTheTableAreNamed) {
  const Tensor table({5, 4}), dy({2, 4});
  Tensor y({2, 4}), dtable({5, 4});
  for (const int32_t bad : {-1, 5}) {
    const Tensor ids = Tensor::from(std::vector<int32_t>{0, bad}, {2});
    EXPECT_EQ(test::message_of([&] { nn::embedding(ids, table, 1, y); }),
              "[embedding] id " + std::to_string(bad) + " at row 1, expected 0 to 4");
    EXPECT_THROW(nn::embedding_backward(dy, ids, 1, dtable), Error);
  }
}

}  // namespace
}  // namespace alibi::nn
