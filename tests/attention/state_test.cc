// Default positions of queries, memory that outputs may share with inputs, and states that are stored as tensors.
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "alibi/kv_cache.h"
#include "attention/cases.h"

namespace alibi::kernels {
namespace {

using namespace test;

AttentionCase skipping_case() {
  AttentionCase c{.batch = 2, .queries = 150, .keys = 333, .heads = 4, .kv_heads = 2, .head_dim = 24};
  c.options.alibi_slopes = {4, 2, 1, 0.5f};
  c.options.tolerance = 0x1p-12f;
  return c;
}

TEST(AttentionPlace, QueriesAreTheLastRowsUnlessTheyAreElsewhere) {
  AttentionCase c{.queries = 7, .keys = 20, .heads = 2, .kv_heads = 2, .head_dim = 8};
  c.options.alibi_slopes = slopes(2);
  AttentionTensors t(c);
  const auto run = [&](std::optional<int64_t> place) {
    AttentionOptions options = c.options;
    options.query_offset = place;
    return attention(t.q, t.k, t.v, options).to_floats();
  };
  EXPECT_EQ(run({}), run(13));
  EXPECT_NE(run({}), run(0));
  KvCache cache(1, 2, 8);
  cache.append(t.k, t.v);
  const auto decode = [&](std::optional<int64_t> place) {
    AttentionOptions options = c.options;
    options.query_offset = place;
    return attention_decode(t.q, cache, options).to_floats();
  };
  EXPECT_EQ(decode({}), decode(13));
  for (const std::optional<int64_t> place : {std::optional<int64_t>(), std::optional<int64_t>(0)}) {
    EXPECT_TRUE(max_abs_diff(decode(place), run(place)) <= 1e-6);
  }
  // The first query at position 0 sees the first key alone.
  const std::vector<float> v = t.v.slice(1, 0, 1).to_floats();
  const std::vector<float> first = decode(0);
  EXPECT_TRUE(max_abs_diff(std::vector<float>(first.begin(), first.begin() + 16), v) <= 1e-6);
}

TEST(AttentionPlace, OfEachPackedSequence) {
  AttentionCase c{.queries = 60, .keys = 100, .heads = 2, .kv_heads = 1, .head_dim = 8};
  c.options.alibi_slopes = slopes(2);
  AttentionTensors t(c);
  AttentionOptions packed = c.options;
  packed.cu_seqlens_q = {0, 50, 60};
  packed.cu_seqlens_k = {0, 70, 100};
  for_each_isa([&] {
    const Tensor out = attention(t.q, t.k, t.v, packed);
    for (const auto& [q0, q1, k0, k1] : {std::array{0, 50, 0, 70}, {50, 60, 70, 100}}) {
      AttentionOptions alone = c.options;
      alone.query_offset = (k1 - k0) - (q1 - q0);
      const Tensor expected = attention(t.q.slice(1, q0, q1), t.k.slice(1, k0, k1), t.v.slice(1, k0, k1), alone);
      EXPECT_TRUE(max_abs_diff(out.slice(1, q0, q1), expected) <= 1e-6);
    }
  });
  std::vector<double> reference;
  attention_reference(t.q, t.k, t.v, packed, reference);
  EXPECT_TRUE(max_abs_diff(attention(t.q, t.k, t.v, packed), reference) <= 1e-6);
}

TEST(AttentionOutputs, ShareNoMemoryWithInputs) {
  AttentionCase c{.queries = 6, .keys = 6, .heads = 2, .kv_heads = 2, .head_dim = 4};
  AttentionTensors t(c);
  for (Tensor* input : {&t.q, &t.k, &t.v}) {
    Tensor out = *input;
    EXPECT_THROW(attention(t.q, t.k, t.v, {}, out), Error);
  }
  // Across the end of q.
  Tensor memory({100});
  const Tensor q = Tensor::view(memory.data<float>(), t.q.shape());
  Tensor out = Tensor::view(memory.data<float>() + 20, t.q.shape());
  EXPECT_THROW(attention(q, t.k, t.v, {}, out), Error);
  // Behind it, and between the rows of one product.
  out = Tensor::view(memory.data<float>() + 48, t.q.shape());
  EXPECT_NO_THROW(attention(q, t.k, t.v, {}, out));
  Tensor product({1, 6, 4, 2, 4});
  const auto part = [&](int64_t i) {
    return Tensor::view(product.data<float>() + 8 * i, t.q.shape(), DType::float32, {192, 32, 4, 1});
  };
  for (int64_t i = 0; i < 3; ++i) part(i).copy_from(i == 0 ? t.q : i == 1 ? t.k : t.v);
  out = part(3);
  attention(part(0), part(1), part(2), {}, out);
  EXPECT_EQ(out.to_floats(), attention(t.q, t.k, t.v).to_floats());
}

TEST(AttentionOutputs, DecodingMayOverwriteItsQueries) {
  AttentionCase c{.batch = 2, .queries = 5, .keys = 300, .heads = 4, .kv_heads = 2, .head_dim = 16};
  c.options.alibi_slopes = slopes(4);
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    c.dtype = dtype;
    AttentionTensors t(c);
    KvCache cache(2, 2, 16);
    cache.append(t.k, t.v);
    const std::vector<float> expected = attention_decode(t.q, cache, c.options).to_floats();
    attention_decode(t.q, cache, c.options, t.q);
    EXPECT_EQ(t.q.to_floats(), expected);
  }
}

TEST(AttentionOutputs, DecodingSharesNoMemoryWithTheCache) {
  for (const auto& [type, cached] : {std::pair{DType::float32, DType::float32},
                                     {DType::float32, DType::bfloat16},
                                     {DType::bfloat16, DType::float32}}) {
    SCOPED_TRACE(name_of(cached));
    const AttentionCase c{.queries = 8, .keys = 64, .head_dim = 16, .dtype = type};
    const AttentionTensors t(c);
    KvCache cache(1, 1, 16, cached);
    cache.reserve(640);
    cache.append(t.k, t.v);
    const Tensor held = cache.values();
    const auto out_at = [&](int64_t byte) {
      return Tensor::view(static_cast<char*>(held.raw()) + byte, t.q.shape(), c.dtype);
    };
    const auto bytes = static_cast<int64_t>(held.bytes());
    Tensor inside = out_at(bytes - 64), behind = out_at(bytes);
    EXPECT_THROW(attention_decode(t.q, cache, {}, inside), Error);
    EXPECT_NO_THROW(attention_decode(t.q, cache, {}, behind));
  }
}

TEST(AttentionOutputs, ACacheMayAppendWhatItHolds) {
  AttentionCase c{.queries = 1, .keys = 37, .heads = 2, .kv_heads = 2, .head_dim = 8};
  AttentionTensors t(c);
  KvCache cache(1, 2, 8);
  cache.append(t.k, t.v);
  for (int i = 0; i < 5; ++i) {  // it must grow now and then
    const std::vector<float> keys = cache.keys().to_floats(), values = cache.values().to_floats();
    const int64_t length = cache.length();
    cache.append(cache.keys(), cache.values());
    EXPECT_EQ(cache.keys().slice(1, length, 2 * length).to_floats(), keys);
    EXPECT_EQ(cache.values().slice(1, length, 2 * length).to_floats(), values);
    EXPECT_EQ(cache.keys().slice(1, 0, length).to_floats(), keys);
  }
}

TEST(AttentionOutputs, MergedInPlaceOrApart) {
  AttentionCase c{.queries = 9, .keys = 9, .heads = 2, .kv_heads = 2, .head_dim = 4};
  AttentionTensors t(c);
  t.forward(c.options);
  Tensor lse = t.state.lse.clone();
  const Tensor expected = t.out.clone();
  // Twice the same: the output stays, the log of the sum grows by log 2.
  merge_attention(t.out, t.state.lse, t.out, t.state.lse, t.out, lse);
  EXPECT_TRUE(max_abs_diff(t.out, expected) <= 1e-6);
  Tensor shifted = Tensor::view(t.out.data<float>() + 4, {1, 8, 2, 4});
  EXPECT_THROW(merge_attention(t.out.slice(1, 0, 8), lse.slice(2, 0, 8).clone(), t.out.slice(1, 0, 8),
                               lse.slice(2, 0, 8).clone(), shifted, lse),
               Error);
}

TEST(AttentionKernelState, SurvivesAsPlainTensors) {
  AttentionCase c = skipping_case();
  AttentionTensors t(c);
  for_each_isa([&] {
    t.forward(c.options);
    t.backward(c.options);
    const std::vector<float> dq = t.dq.to_floats(), dk = t.dk.to_floats(), dv = t.dv.to_floats();
    const Tensor lse = t.state.kernel.saved_lse().clone(), blocks = t.state.kernel.saved_blocks();
    EXPECT_EQ(blocks.elements(), KernelState::saved_words(c.batch, c.queries, c.heads, c.options));
    EXPECT_LT(t.state.stats.blocks_visited, t.state.stats.blocks_total);
    AttentionState restored{.lse = t.state.lse, .stats = {}, .kernel = KernelState::restore(lse, blocks)};
    EXPECT_EQ(restored.kernel.saved_blocks().to_ints(), blocks.to_ints());
    t.state = restored;
    t.backward(c.options);
    EXPECT_EQ(t.dq.to_floats(), dq);
    EXPECT_EQ(t.dk.to_floats(), dk);
    EXPECT_EQ(t.dv.to_floats(), dv);
  });
}

TEST(AttentionKernelState, OfAnotherKernelVisitsEveryKey) {
  AttentionCase c = skipping_case();
  AttentionTensors t(c);
  t.forward(c.options);
  Tensor blocks = t.state.kernel.saved_blocks();
  blocks.data<int32_t>()[0] = 2;  // the kernel for AMX, which float32 never uses
  t.state.kernel = KernelState::restore(t.state.kernel.saved_lse(), blocks);
  t.backward(c.options);
  const std::vector<float> other = t.dv.to_floats();
  AttentionOptions every = c.options;
  every.tolerance = 0;
  t.backward(every);
  EXPECT_EQ(t.dv.to_floats(), other);
}

TEST(AttentionKernelState, SizesAreKnownBefore) {
  AttentionOptions options;
  EXPECT_EQ(KernelState::saved_words(2, 100, 4, options), KernelState::saved_words(8, 5000, 64, options));
  options.tolerance = 0.1f;
  EXPECT_EQ(KernelState::saved_words(2, 64, 3, options) - KernelState::saved_words(0, 64, 3, options), 2 * 3 * 2 * 2);
  options.cu_seqlens_q = {0, 1, 1, 34};
  EXPECT_EQ(KernelState::saved_words(1, 34, 1, options) - KernelState::saved_words(1, 34, 0, options), 2 * 3);
  // A state has the same size if its kernel had nothing to skip.
  AttentionCase c{.queries = 70, .keys = 70, .heads = 2, .kv_heads = 2, .head_dim = 8};
  c.options.tolerance = 0.1f;
  AttentionTensors t(c);
  t.forward(c.options);
  EXPECT_EQ(t.state.kernel.saved_blocks().elements(), KernelState::saved_words(1, 70, 2, c.options));
}

TEST(AttentionKernelState, DamageIsNoticed) {
  AttentionCase c = skipping_case();
  AttentionTensors t(c);
  t.forward(c.options);
  const Tensor lse = t.state.kernel.saved_lse(), whole = t.state.kernel.saved_blocks();
  const auto damaged = [&](size_t word, int32_t value) {
    Tensor blocks = whole.clone();
    blocks.data<int32_t>()[word] = value;
    return blocks;
  };
  const std::string message = "saved blocks begin with";
  expect_error([&] { KernelState::restore(lse, damaged(0, 4)); }, {message});
  expect_error([&] { KernelState::restore(lse, damaged(0, -1)); }, {message});
  expect_error([&] { KernelState::restore(lse, damaged(1, 1 << 30)); }, {message});
  expect_error([&] { KernelState::restore(lse, damaged(1, -1)); }, {message});
  expect_error([&] { KernelState::restore(lse, Tensor({1}, DType::int32)); }, {"at least 2"});
  expect_error([&] { KernelState::restore(lse, Tensor({8})); }, {"float32 [8]"});
  expect_error([&] { KernelState::restore(Tensor({8}), damaged(0, 1)); }, {"saved lse is float32 [8]"});
  // The state of another call.
  t.state.kernel = KernelState::restore(lse, damaged(1, 3));
  expect_error([&] { t.backward(c.options); }, {"state has 3 query blocks, expected 32"});
  // Blocks that do not exist are not visited.
  t.state.kernel = KernelState::restore(lse, damaged(2, -1000));
  EXPECT_NO_THROW(t.backward(c.options));
  t.state.kernel = KernelState::restore(lse, damaged(40, 1 << 30));
  EXPECT_NO_THROW(t.backward(c.options));
}

}  // namespace
}  // namespace alibi::kernels
