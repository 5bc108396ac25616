// A text fed in pieces, with the keys and values of the tokens before in caches, gives what it gives as a whole.
#include <gtest/gtest.h>

#include "alibi/error.h"
#include "model/small_transformer.h"
#include "model/transformer_state.h"
#include "positions.h"
#include "testing.h"

namespace alibi::model {
namespace {

TransformerConfig cached_config(Position position) {
  TransformerConfig config = test::small_transformer(position);
  config.attention.heads = 4;
  config.attention.kv_heads = 2;
  if (position == Position::alibi) config.attention.slope_training = SlopeTraining::learned_random;
  return config;
}

std::vector<KvCache> caches_of(const TransformerConfig& config, int64_t batch, DType dtype) {
  std::vector<KvCache> caches;
  for (int i = 0; i < config.layers; ++i) caches.emplace_back(batch, config.key_heads(), config.head_dim(), dtype);
  return caches;
}

Tensor in_pieces(const Transformer& model, const Tensor& x, const std::vector<int64_t>& pieces, DType dtype) {
  std::vector<KvCache> caches = caches_of(model.config(), x.size(0), dtype);
  Tensor y = Tensor::empty(x.shape());
  Pass pass;
  Session& session = pass.sequences.together;
  session.caches = caches;
  for (const int64_t piece : pieces) {
    const int64_t end = session.position + piece;
    y.slice(1, session.position, end)
        .copy_from(core::state_of(model).forward(x.slice(1, session.position, end), Keep::nothing, pass));
    session.position = end;
  }
  EXPECT_EQ(session.position, x.size(1));
  return y;
}

class CachedPass : public testing::TestWithParam<Position> {};
INSTANTIATE_TEST_SUITE_P(, CachedPass, testing::ValuesIn(test::position_cases()),
                         [](const auto& test) { return test::case_name(test.param); });

TEST_P(CachedPass, PiecesGiveWhatTheWholeGives) {
  const Transformer model(cached_config(GetParam()), 7);
  const Tensor x = test::random_tensor({2, 90, 24}, 1), whole = model(x);
  EXPECT_TRUE(test::same_bits(in_pieces(model, x, {90}, DType::float32), whole));
  for (const std::vector<int64_t>& pieces :
       {std::vector<int64_t>{40, 1, 1, 5, 43}, {1, 88, 1}, std::vector<int64_t>(90, 1)}) {
    EXPECT_TRUE(test::max_abs_diff(in_pieces(model, x, pieces, DType::float32), whole) <= 2e-5) << pieces.size();
  }
  const double rounded = test::max_abs_diff(in_pieces(model, x, {40, 1, 1, 5, 43}, DType::bfloat16), whole);
  EXPECT_TRUE(rounded <= 3e-2) << rounded;
  EXPECT_GT(rounded, 1e-5) << "bfloat16 caches were not read";
}

TEST_P(CachedPass, PiecesGiveWhatTheWholeGivesInBfloat16) {
  Transformer model(cached_config(GetParam()), 7);
  model.set_precision(Precision::bf16);
  const Tensor x = test::random_tensor({2, 50, 24}, 1), whole = model(x);
  EXPECT_TRUE(test::max_abs_diff(in_pieces(model, x, {20, 1, 1, 28}, DType::bfloat16), whole) <= 6e-2);
}

TEST(Caches, ThatDoNotFitAreRefused) {
  const TransformerConfig config = cached_config(Position::alibi);
  const Transformer model(config, 7);
  const Tensor x = test::random_tensor({2, 5, 24}, 1);
  std::vector<KvCache> caches = caches_of(config, 2, DType::float32), few = caches_of(config, 2, DType::float32);
  few.pop_back();
  Pass pass;
  Session& session = pass.sequences.together;
  session.caches = few;
  EXPECT_THROW(core::state_of(model).forward(x, Keep::nothing, pass), Error);
  session.caches = caches;
  session.position = 1;
  EXPECT_THROW(core::state_of(model).forward(x, Keep::nothing, pass), Error);
  session.position = 0;
  EXPECT_THROW(core::state_of(model).forward(x, Keep::all, pass), Error);
  EXPECT_NO_THROW(core::state_of(model).forward(x, Keep::nothing, pass));
  EXPECT_THROW(core::state_of(model).forward(x, Keep::nothing, pass), Error) << "they hold 5 tokens now";
  TransformerConfig encoder = config;
  encoder.attention.causal = false;
  caches = caches_of(config, 2, DType::float32);
  session.caches = caches;
  EXPECT_THROW(core::state_of(Transformer(encoder, 7)).forward(x, Keep::nothing, pass), Error);
}

}  // namespace
}  // namespace alibi::model
