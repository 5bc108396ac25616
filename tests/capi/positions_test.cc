// Attention with given positions through the C interface: the bits of C++, and what it refuses.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "alibi/attention_positions.h"
#include "alibi/c.h"
#include "testing.h"

namespace alibi::test {
namespace {

class CPositions : public testing::Test {
 protected:
  static alibi_tensor view(const Tensor& tensor) {
    return {tensor.raw(), ALIBI_FLOAT32, {1, tensor.size(1), 2, 4}, {0, 0, 0, 0}};
  }
  void SetUp() override {
    ASSERT_EQ(alibi_attention_state_create(&state), ALIBI_OK);
    positions.q = points.raw();
    positions.k = points_k.raw();
    positions.leading = 1;
    positions.distance = ALIBI_MANHATTAN;
    options.alibi_slopes = slopes_of_heads.data();
    options.alibi_slopes_count = 2;
  }
  void TearDown() override { alibi_attention_state_destroy(state); }
  alibi_status forward() { return alibi_attention_positions(&tq, &tk, &tv, &positions, &options, &to, state); }
  void expect_refused(const std::string& part) {
    EXPECT_EQ(forward(), ALIBI_ERROR);
    EXPECT_NE(std::string(alibi_last_error()).find(part), std::string::npos) << alibi_last_error();
  }

  Tensor q = random_tensor({1, 9, 2, 4}, 1), k = random_tensor({1, 7, 2, 4}, 2), v = random_tensor({1, 7, 2, 4}, 3);
  Tensor out = Tensor({1, 9, 2, 4}), points = random_tensor({1, 9, 2}, 4), points_k = random_tensor({1, 7, 2}, 5);
  std::vector<float> slopes_of_heads = {0.5f, 0.25f};
  alibi_tensor tq = view(q), tk = view(k), tv = view(v), to = view(out);
  alibi_positions positions = alibi_positions_default();
  alibi_attention_options options = alibi_attention_options_default();
  alibi_attention_state* state = nullptr;
};

TEST_F(CPositions, GivesTheBitsOfCpp) {
  const AttentionPositions given = {.q = points, .k = points_k};
  AttentionPositionsOptions same;
  same.alibi_slopes = slopes_of_heads;
  same.distance = Distance::manhattan;
  same.leading = 1;
  AttentionPositionsState kept;
  const Tensor expected = attention_positions(q, k, v, given, same, &kept);
  ASSERT_EQ(forward(), ALIBI_OK) << alibi_last_error();
  EXPECT_TRUE(same_bits(out, expected));
  Tensor lse({1, 2, 9});
  ASSERT_EQ(alibi_attention_state_lse(state, lse.data<float>(), 18), ALIBI_OK);
  EXPECT_TRUE(same_bits(lse, kept.lse));
  int64_t visited = 0, total = 0;
  ASSERT_EQ(alibi_attention_state_blocks(state, &visited, &total), ALIBI_OK);
  EXPECT_EQ(total, kept.stats.blocks_total);
  const Tensor dout = random_tensor({1, 9, 2, 4}, 6);
  Tensor found[] = {Tensor({1, 9, 2, 4}), Tensor({1, 7, 2, 4}), Tensor({1, 7, 2, 4}), Tensor({2})};
  Tensor wanted[] = {Tensor({1, 9, 2, 4}), Tensor({1, 7, 2, 4}), Tensor({1, 7, 2, 4}), Tensor({2})};
  const alibi_tensor td = view(dout), dq = view(found[0]), dk = view(found[1]), dv = view(found[2]);
  ASSERT_EQ(alibi_attention_positions_backward(&td, &tq, &tk, &tv, &to, &positions, state, &options, &dq, &dk, &dv,
                                               found[3].data<float>()),
            ALIBI_OK)
      << alibi_last_error();
  attention_positions_backward(dout, q, k, v, out, given, kept, same, wanted[0], wanted[1], wanted[2], &wanted[3]);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(same_bits(found[i], wanted[i])) << i;
}

TEST_F(CPositions, SelfAttentionAndPadding) {
  const int32_t used = 5;
  positions.k = nullptr;
  positions.seqused_q = positions.seqused_k = &used;
  positions.seqused_q_count = positions.seqused_k_count = 1;
  tq = view(k);
  to = view(out);
  to.shape[1] = 7;
  ASSERT_EQ(forward(), ALIBI_OK) << alibi_last_error();
  for (int i = 5 * 8; i < 7 * 8; ++i) EXPECT_EQ(out.data<float>()[i], 0);
  EXPECT_NE(out.data<float>()[4 * 8], 0);
}

TEST_F(CPositions, NamesWhatDoesNotFit) {
  const alibi_positions good = positions;
  const auto expect = [&](const auto& change, const char* part) {
    change();
    expect_refused(part);
    positions = good;
    options.dropout_p = 0;
    options.device = ALIBI_DEVICE_CPU;
  };
  expect([&] { positions.size = 3; }, "[alibi_attention_positions] positions.size is 3");
  expect([&] { positions.dims = 4; }, "positions.dims is 4, expected 1 to 3");
  expect([&] { positions.integers = 2; }, "positions.integers is 2");
  expect([&] { positions.distance = 2; }, "positions.distance is 2");
  expect([&] { positions.q = nullptr; }, "positions.q is null");
  expect([&] { positions.q_batch = 2; }, "positions_q has shape [2, 9, 2]");
  expect([&] { positions.seqused_q_count = 1; }, "positions.seqused_q is null");
  expect([&] { positions.leading = -1; }, "leading is -1");
  expect([&] { options.dropout_p = 0.5f; }, "dropout_p, expected their defaults");
  expect([&] { options.device = ALIBI_DEVICE_CUDA; }, "device is ALIBI_DEVICE_CUDA");
  ASSERT_EQ(forward(), ALIBI_OK);
  EXPECT_EQ(alibi_attention_state_save(state, nullptr, nullptr, 0, nullptr, 0), ALIBI_ERROR);
  EXPECT_NE(std::string(alibi_last_error()).find("cannot be saved"), std::string::npos);
  EXPECT_EQ(alibi_attention_positions(&tq, &tk, &tv, nullptr, &options, &to, nullptr), ALIBI_ERROR);
}

}  // namespace
}  // namespace alibi::test
