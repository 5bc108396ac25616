// Keys and values in pages, against the float64 reference over the same keys in one piece.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "alibi/kv_cache.h"
#include "attention/cases.h"
#include "attention/gates.h"
#include "attention/kernel.h"

namespace alibi::kernels {
namespace {

using namespace test;

/// Keys of each batch entry, in pages of a pool in random order.
struct Paged {
  Paged(const AttentionCase& c, int64_t page_rows, std::vector<int32_t> rows, uint64_t seed) : used(std::move(rows)) {
    std::mt19937_64 random(seed);
    int64_t most = 0;
    for (const int32_t n : used) most = std::max<int64_t>(most, (n + page_rows - 1) / page_rows);
    const int64_t sequences = std::ssize(used), pool = sequences * most + 3;
    std::vector<int32_t> pages(static_cast<size_t>(pool));
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), random);
    table =
        Tensor::from(std::span<const int32_t>(pages).first(static_cast<size_t>(sequences * most)), {sequences, most});
    const Shape shape = {pool, page_rows, c.kv_heads, c.head_dim};
    k = random_tensor(shape, seed + 1, c.input_scale, c.dtype);
    v = random_tensor(shape, seed + 2, 1, c.dtype);
  }

  /// The rows of a sequence in one piece, [1, rows, kv_heads, head_dim].
  Tensor gathered(const Tensor& cache, int64_t sequence) const {
    const int64_t rows = used[static_cast<size_t>(sequence)], page_rows = cache.size(1);
    Tensor result = Tensor::empty({1, rows, cache.size(2), cache.size(3)}, cache.dtype());
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t page = table.data<int32_t>()[sequence * table.size(1) + i / page_rows];
      result.slice(1, i, i + 1).copy_from(cache.slice(0, page, page + 1).slice(1, i % page_rows, i % page_rows + 1));
    }
    return result;
  }

  /// The gates of a sequence in one piece, [1, rows, heads].
  Tensor gathered_gates(const Tensor& gates, int64_t sequence) const {
    const Tensor rows = gathered(gates.reshape({gates.size(0), gates.size(1), gates.size(2), 1}), sequence);
    return rows.reshape({1, rows.size(1), rows.size(2)});
  }

  std::vector<int32_t> used;
  Tensor table, k, v;
};

double unit_of(DType dtype) { return dtype == DType::float32 ? 3e-6 : dtype == DType::float16 ? 0x1p-10 : 0x1p-7; }

/// The options of one batch entry.
AttentionOptions options_of(const AttentionCase& c, int64_t b) {
  AttentionOptions one = c.options;
  for (std::vector<float>* slopes : {&one.alibi_slopes, &one.alibi_slopes_after}) {
    if (std::ssize(*slopes) == c.batch * c.heads) {
      *slopes = {slopes->begin() + b * c.heads, slopes->begin() + (b + 1) * c.heads};
    }
  }
  return one;
}

/// Attention over pages is that of the reference over the rows in one piece, for every entry, and so is the reference's
/// own over pages.
void expect_pages(const AttentionCase& c, const Paged& paged) {
  SCOPED_TRACE(fmt::format("page rows {} used {} {}", paged.k.size(1), fmt::join(paged.used, ","), c.name()));
  const Tensor q = random_tensor({c.batch, c.queries, c.heads, c.head_dim}, c.seed, c.input_scale, c.dtype);
  AttentionOptions options = c.options;
  options.block_table = paged.table;
  options.seqused_k = paged.used;
  std::vector<double> all, all_lse;
  attention_reference(q, paged.k, paged.v, options, all, &all_lse);
  for_each_isa([&] {
    Tensor out = Tensor::empty(q.shape(), c.dtype);
    out.fill(std::numeric_limits<float>::quiet_NaN());
    AttentionState state;
    attention(q, paged.k, paged.v, options, out, &state);
    for (int64_t b = 0; b < c.batch; ++b) {
      const Tensor k = paged.gathered(paged.k, b), v = paged.gathered(paged.v, b), one = q.slice(0, b, b + 1);
      std::vector<double> expected, lse;
      AttentionOptions of_entry = options_of(c, b);
      if (c.options.log_decay) of_entry.log_decay = paged.gathered_gates(*c.options.log_decay, b);
      attention_reference(one, k, v, of_entry, expected, &lse);
      const std::vector<double> found = doubles(out.slice(0, b, b + 1));
      EXPECT_TRUE(max_abs_diff(found, expected) <= unit_of(c.dtype) * std::max(1.0, max_abs(expected)))
          << "entry " << b << " differs by " << max_abs_diff(found, expected);
      const auto size = static_cast<int64_t>(expected.size());
      EXPECT_EQ(max_abs_diff(std::vector<double>(all.begin() + b * size, all.begin() + (b + 1) * size), expected), 0);
      const std::vector<double> found_lse = doubles(state.lse.slice(0, b, b + 1));
      const double score = 1 + static_cast<double>(c.input_scale * c.input_scale);
      for (size_t i = 0; i < lse.size(); ++i) {
        EXPECT_TRUE(found_lse[i] == lse[i] ||
                    std::abs(found_lse[i] - lse[i]) <= 6e-6 * score + 1e-6 * std::abs(lse[i]));
      }
    }
  });
}

TEST(AttentionPages, RandomCases) {
  std::mt19937_64 random(5);
  const auto pick = [&](std::initializer_list<int64_t> of) { return of.begin()[random() % of.size()]; };
  int decoded = 0;
  for (int i = 0; i < 60; ++i) {
    AttentionCase c;
    c.seed = static_cast<uint64_t>(1000 * i);
    c.batch = pick({1, 2, 3});
    c.queries = pick({1, 1, 2, 5, 40, 70});
    c.heads = pick({2, 4, 6});
    c.kv_heads = c.heads / pick({1, 2, 2});
    c.head_dim = pick({16, 32, 64, 80, 20, 33});
    c.dtype = i % 3 == 0 ? DType::float32 : i % 3 == 1 ? DType::float16 : DType::bfloat16;
    c.options.causal = pick({0, 1}) != 0;
    if (pick({0, 1}) != 0) {
      for (int64_t n = 0; n < c.batch * c.heads; ++n) c.options.alibi_slopes.push_back(0.03f * static_cast<float>(n));
    }
    c.options.sliding_window = pick({0, 0, 1, 20, 100});
    if (!c.options.causal) c.options.sliding_window_after = pick({0, -1, 30});
    if (pick({0, 0, 1}) != 0) c.options.softcap = 2;
    if (pick({0, 0, 1}) != 0) c.options.tolerance = 0x1p-24f;
    std::vector<int32_t> used;
    for (int64_t b = 0; b < c.batch; ++b) used.push_back(static_cast<int32_t>(pick({0, 1, 63, 64, 65, 150, 300, 700})));
    const int64_t page_rows = pick({1, 16, 32, 64, 100, 256});
    decoded += c.queries * c.heads / c.kv_heads <= 16 && c.head_dim % 16 == 0 && page_rows % 64 == 0;
    expect_pages(c, Paged(c, page_rows, used, c.seed + 7));
  }
  EXPECT_GT(decoded, 5) << "cases of the kernel for few queries";
}

TEST(AttentionPages, Gates) {
  std::mt19937_64 random(6);
  const auto pick = [&](std::initializer_list<int64_t> of) { return of.begin()[random() % of.size()]; };
  int decoded = 0;
  for (int i = 0; i < 48; ++i) {
    AttentionCase c{.batch = pick({1, 2, 3}), .queries = pick({1, 1, 2, 40, 70}), .kv_heads = 2, .head_dim = 16};
    c.seed = static_cast<uint64_t>(1000 * i + 400000);
    c.heads = c.kv_heads * pick({1, 2});
    c.dtype = i % 3 == 0 ? DType::float32 : i % 3 == 1 ? DType::float16 : DType::bfloat16;
    if (pick({0, 1}) != 0) c.options.alibi_slopes = slopes(static_cast<int>(c.heads));
    if (pick({0, 0, 1}) != 0) c.options.sliding_window = 100;
    if (pick({0, 0, 1}) != 0) c.options.tolerance = 0x1p-24f;
    if (pick({0, 0, 1}) != 0) c.options.sinks = random_sinks(c.heads, c.seed);
    std::vector<int32_t> used;
    for (int64_t b = 0; b < c.batch; ++b) used.push_back(static_cast<int32_t>(pick({0, 1, 63, 65, 150, 300, 700})));
    const Paged paged(c, pick({1, 64, 100, 256}), used, c.seed + 7);
    c.options.log_decay =
        random_gates({paged.k.size(0), paged.k.size(1), c.heads}, c.seed + 9, static_cast<Gates>(i / 3 % 4));
    decoded += c.queries * c.heads / c.kv_heads <= 16 && paged.k.size(1) % 64 == 0;
    expect_pages(c, paged);
  }
  EXPECT_GT(decoded, 5) << "cases of the kernel for few queries";
}

/// The bits of a cache in one piece: the blocks of keys and their order are the same.
TEST(AttentionPages, FewQueriesHaveTheBitsOfACache) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    AttentionCase c{.batch = 1, .queries = 2, .heads = 4, .kv_heads = 2, .head_dim = 48, .dtype = dtype};
    c.options.alibi_slopes = slopes(4);
    const Paged paged(c, 128, {1500}, 3);
    const Tensor q = random_tensor({1, 2, 4, 48}, 9, 1, dtype);
    KvCache cache(1, 2, 48, dtype);
    cache.append(paged.gathered(paged.k, 0), paged.gathered(paged.v, 0));
    AttentionOptions options = c.options;
    const Tensor expected = attention_decode(q, cache, options);
    const Tensor gates = random_gates({paged.k.size(0), 128, 4}, 8, Gates::mild);
    KvCache gated(1, 2, 48, dtype);
    gated.append(paged.gathered(paged.k, 0), paged.gathered(paged.v, 0), paged.gathered_gates(gates, 0));
    const Tensor expected_with_gates = attention_decode(q, gated, options);
    options.block_table = paged.table;
    options.seqused_k = paged.used;
    EXPECT_TRUE(same_bits(attention(q, paged.k, paged.v, options), expected));
    options.log_decay = gates;
    EXPECT_TRUE(same_bits(attention(q, paged.k, paged.v, options), expected_with_gates));
    expect_same_bits_at_any_thread_count([&] { return std::vector<Tensor>{attention(q, paged.k, paged.v, options)}; });
  }
}

TEST(AttentionPages, FewQueriesKeepTheirLogSumExps) {
  AttentionCase c{.batch = 1, .queries = 2, .heads = 4, .kv_heads = 2, .head_dim = 48};
  c.options.alibi_slopes = slopes(4);
  const Paged paged(c, 128, {1}, 3);  // the first query lies before the only key
  AttentionOptions options = c.options;
  options.block_table = paged.table;
  options.seqused_k = paged.used;
  AttentionState state;
  attention(random_tensor({1, 2, 4, 48}, 9), paged.k, paged.v, options, &state);
  EXPECT_TRUE(same_bits(state.kernel.saved_lse(), state.lse));
}

TEST(AttentionPages, ManyQueriesHaveTheBitsOfKeysInOnePiece) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    for (const int64_t page_rows : {50, 64}) {
      for (const float tolerance : {0.0f, 1e-3f}) {
        AttentionCase c{.batch = 1, .queries = 90, .heads = 4, .kv_heads = 2, .head_dim = 40, .dtype = dtype};
        c.options.alibi_slopes = {0.5f, 0.25f, 1, 2};
        c.options.tolerance = tolerance;
        // Queries at positions without a key are left to the kernel that takes pages of any size.
        c.options.query_offset = page_rows == 50 ? 450 : 300;
        const Paged paged(c, page_rows, {500}, 4);
        const Tensor q = random_tensor({1, 90, 4, 40}, 9, 1, dtype);
        AttentionOptions options = c.options;
        const Tensor expected = attention(q, paged.gathered(paged.k, 0), paged.gathered(paged.v, 0), options);
        options.block_table = paged.table;
        options.seqused_k = paged.used;
        EXPECT_TRUE(same_bits(attention(q, paged.k, paged.v, options), expected)) << page_rows << name_of(dtype);
      }
    }
  }
}

TEST(AttentionPages, PackedQueries) {
  AttentionCase c{.heads = 4, .kv_heads = 2, .head_dim = 32};
  for (int i = 0; i < 3 * 4; ++i) c.options.alibi_slopes.push_back(0.1f * static_cast<float>(i));
  const Paged paged(c, 64, {70, 300, 10}, 6);
  const std::vector<int32_t> q_offsets = {0, 1, 40, 45};
  AttentionOptions options = c.options;
  options.block_table = paged.table;
  options.cu_seqlens_q = q_offsets;
  options.cu_seqlens_k = {0, 70, 370, 380};
  const Tensor q = random_tensor({1, 45, 4, 32}, 8);
  const Tensor out = attention(q, paged.k, paged.v, options);
  for (int64_t s = 0; s < 3; ++s) {
    AttentionOptions one;
    one.alibi_slopes = {options.alibi_slopes.begin() + 4 * s, options.alibi_slopes.begin() + 4 * s + 4};
    const auto i = static_cast<size_t>(s);
    std::vector<double> expected;
    attention_reference(q.slice(1, q_offsets[i], q_offsets[i + 1]), paged.gathered(paged.k, s),
                        paged.gathered(paged.v, s), one, expected);
    EXPECT_TRUE(max_abs_diff(out.slice(1, q_offsets[i], q_offsets[i + 1]), expected) <= 3e-6) << s;
  }
}

/// Rows that a batch entry does not use have no influence, and no gradient.
TEST(AttentionPages, RowsOfEachEntryWithoutPages) {
  AttentionCase c{.batch = 3, .queries = 40, .keys = 100, .heads = 2, .kv_heads = 2, .head_dim = 16};
  c.options.alibi_slopes = slopes(2);
  c.options.seqused_k = {100, 60, 41};
  c.options.leftpad_k = {0, 7, 41};
  for (const auto& [causal, dtype] :
       {std::pair{true, DType::float32}, {false, DType::float32}, {true, DType::bfloat16}, {false, DType::float16}}) {
    c.options.causal = causal;
    c.dtype = dtype;
    AttentionTensors t(c);
    t.forward(c.options);
    t.backward(c.options);
    AttentionReferenceGradients gradients;
    attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, gradients);
    EXPECT_TRUE(max_abs_diff(t.dk, gradients.dk) <= 4 * unit_of(dtype) * max_abs(gradients.dk));
    EXPECT_TRUE(max_abs_diff(t.dv, gradients.dv) <= 4 * unit_of(dtype) * max_abs(gradients.dv));
    for (int64_t b = 0; b < 3; ++b) {
      const auto i = static_cast<size_t>(b);
      const int64_t first = c.options.leftpad_k[i], last = c.options.seqused_k[i];
      const auto entry = [&](const Tensor& x) { return x.slice(0, b, b + 1); };
      const auto keys = [&](const Tensor& x) { return entry(x).slice(1, first, last); };
      const AttentionOptions plain{.alibi_slopes = slopes(2), .causal = causal};
      const Tensor alone = attention(entry(t.q), keys(t.k), keys(t.v), plain);
      if (dtype == DType::bfloat16) {  // an entry without keys leaves the whole call to the float32 kernel
        EXPECT_TRUE(max_abs_diff(alone, entry(t.out)) <= 2 * unit_of(dtype)) << b;
      } else {
        EXPECT_TRUE(same_bits(alone, entry(t.out))) << b;
      }
      EXPECT_EQ(max_abs(entry(t.dk).slice(1, 0, first).to_floats()), 0);
      EXPECT_EQ(max_abs(entry(t.dk).slice(1, last, 100).to_floats()), 0);
    }
  }
}

TEST(AppendKeys, WritesBehindTheKeysOfEachEntry) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    const AttentionCase c{.kv_heads = 2, .head_dim = 8, .dtype = dtype};
    Paged paged(c, 16, {40, 33}, 2);
    const Tensor before = paged.gathered(paged.k, 0);
    const Tensor k = random_tensor({2, 5, 2, 8}, 1, 1, dtype), v = random_tensor({2, 5, 2, 8}, 2, 1, dtype);
    append_keys(k, v, {30, 28}, paged.table, paged.k, paged.v);
    EXPECT_TRUE(same_bits(paged.gathered(paged.k, 0).slice(1, 30, 35).clone(), k.slice(0, 0, 1).clone()));
    EXPECT_TRUE(same_bits(paged.gathered(paged.v, 1).slice(1, 28, 33).clone(), v.slice(0, 1, 2).clone()));
    EXPECT_TRUE(same_bits(paged.gathered(paged.k, 0).slice(1, 0, 30).clone(), before.slice(1, 0, 30).clone()));
    EXPECT_TRUE(same_bits(paged.gathered(paged.k, 0).slice(1, 35, 40).clone(), before.slice(1, 35, 40).clone()));
    Tensor k_rows({2, 9, 2, 8}, dtype), v_rows({2, 9, 2, 8}, dtype);
    append_keys(k, v, {4, 0}, {}, k_rows, v_rows);
    EXPECT_TRUE(same_bits(k_rows.slice(0, 0, 1).slice(1, 4, 9).clone(), k.slice(0, 0, 1).clone()));
    EXPECT_TRUE(same_bits(v_rows.slice(0, 1, 2).slice(1, 0, 5).clone(), v.slice(0, 1, 2).clone()));
  }
}

TEST(AttentionPages, ErrorsNameTheArgument) {
  const AttentionCase c{.batch = 2, .queries = 3, .heads = 2, .kv_heads = 2, .head_dim = 16};
  Paged paged(c, 64, {100, 70}, 2);
  const Tensor q({2, 3, 2, 16});
  const auto call = [&](const std::function<void(AttentionOptions&)>& change) {
    AttentionOptions options;
    options.block_table = paged.table;
    options.seqused_k = paged.used;
    change(options);
    return [&, options] { attention(q, paged.k, paged.v, options); };
  };
  test::expect_error(call([](AttentionOptions& o) { o.seqused_k = {}; }), "block_table is set without seqused_k");
  test::expect_error(call([](AttentionOptions& o) { o.seqused_k = {1}; }), "seqused_k has 1 values, expected 2");
  test::expect_error(call([](AttentionOptions& o) { o.seqused_k = {-1, 1}; }), "seqused_k[0] is -1");
  test::expect_error(call([](AttentionOptions& o) { o.seqused_k = {128, 129}; }), "block_table has 2 pages of 64 rows");
  test::expect_error(call([](AttentionOptions& o) { o.leftpad_k = {3, 71}; }), "leftpad_k[1] is 71, expected 0 to 70");
  test::expect_error(call([](AttentionOptions& o) { o.block_table = Tensor({2, 2}); }), "block_table has shape [2, 2]");
  test::expect_error(call([](AttentionOptions& o) {
                       o.block_table = Tensor({1, 2}, DType::int32);
                     }),
                     "block_table has 1 rows, expected 2");
  Tensor wrong = paged.table.clone();
  wrong.data<int32_t>()[3] = 99;
  test::expect_error(call([&](AttentionOptions& o) { o.block_table = wrong; }),
                     "block_table[1][1] is 99, expected 0 to 6");
  Tensor gates({paged.k.size(0), 64, 2});
  gates.data<float>()[(paged.table.data<int32_t>()[3] * 64 + 5) * 2 + 1] = 0.5f;  // row 69 of the second entry
  test::expect_error(call([&](AttentionOptions& o) { o.log_decay = gates; }), "log_decay[1][69][1] is 0.5");
  test::expect_error(call([&](AttentionOptions& o) {
                       o.log_decay = Tensor({2, 128, 2});
                     }),
                     fmt::format("log_decay has shape [2, 128, 2], expected float32 [{}, 64, 2]", paged.k.size(0)));
  AttentionOptions options;
  options.block_table = paged.table;
  options.seqused_k = paged.used;
  AttentionState state;
  Tensor out = Tensor::empty(q.shape());
  attention(q, paged.k, paged.v, options, out, &state);
  Tensor dq = Tensor::empty(q.shape()), dk = Tensor::empty(paged.k.shape()), dv = Tensor::empty(paged.k.shape());
  test::expect_error([&] { attention_backward(out, q, paged.k, paged.v, out, state, options, dq, dk, dv); },
                     "[attention_backward] block_table");
  KvCache cache(2, 2, 16);
  cache.append(Tensor({2, 5, 2, 16}), Tensor({2, 5, 2, 16}));
  test::expect_error([&] { attention_decode(q, cache, options); }, "[attention_decode] block_table");
  const Tensor k({2, 5, 2, 16});
  test::expect_error(
      [&] {
        append_keys(k, k, {124, 0}, paged.table, paged.k, paged.v);
      },
      "[append_keys] block_table has 2 pages");
  test::expect_error([&] { append_keys(k, k, {0}, paged.table, paged.k, paged.v); }, "cache_seqlens has 1 values");
  test::expect_error([&] { append_keys(k, k, {0, -1}, paged.table, paged.k, paged.v); }, "cache_seqlens[1] is -1");
  test::expect_error(
      [&] {
        append_keys(k, Tensor({2, 4, 2, 16}), {0, 0}, paged.table, paged.k, paged.v);
      },
      "v has shape");
  test::expect_error(
      [&] {
        append_keys(k.to(DType::bfloat16), k, {0, 0}, paged.table, paged.k, paged.v);
      },
      "v is float32");
  Tensor rows({2, 4, 2, 16}), other({2, 4, 2, 16});
  test::expect_error([&] { append_keys(k, k, {0, 0}, {}, rows, other); }, "k_cache has 4 rows, expected at least 5");
}

TEST(AttentionPages, NewKeysAreWrittenToSeparateRows) {
  const Tensor k = random_tensor({2, 3, 2, 16}, 1), v = random_tensor({2, 3, 2, 16}, 2);
  Tensor k_cache({3, 8, 2, 16}), v_cache({3, 8, 2, 16});
  const auto refuse = [&](const Tensor& keys, const std::vector<int32_t>& lengths, const std::vector<int32_t>& pages,
                          Tensor to, const std::string& message) {
    const std::vector<float> before = to.to_floats();
    test::expect_error([&] { append_keys(keys, v, lengths, Tensor::from(pages, {2, 2}), to, v_cache); }, message);
    EXPECT_EQ(to.to_floats(), before);
    EXPECT_EQ(v_cache.to_floats(), std::vector<float>(v_cache.to_floats().size()));
  };
  refuse(k, {0, 2}, {1, 0, 1, 2}, k_cache, "block_table gives the new keys of batch entries 0 and 1 the same page, 1");
  refuse(k, {7, 1}, {0, 1, 1, 2}, k_cache, "block_table gives the new keys of batch entries 0 and 1 the same page, 1");
  const Tensor one_page = Tensor::view(k_cache.raw(), {3, 8, 2, 16}, DType::float32, {0, 32, 16, 1});
  refuse(k, {0, 0}, {0, 1, 2, 1}, one_page, "k_cache has strides [0, 32, 16, 1]");
  refuse(k, {0, 0}, {0, 1, 2, 1}, v_cache, "v_cache shares memory with k_cache");
  const Tensor inside = Tensor::view(k_cache.raw(), {2, 3, 2, 16}, DType::float32, {64, 32, 16, 1});
  refuse(inside, {4, 4}, {0, 1, 0, 1}, k_cache,
         "block_table gives the new keys of batch entries 0 and 1 the same page");
  refuse(inside, {4, 0}, {0, 1, 2, 1}, k_cache, "k_cache shares memory with k");
  append_keys(inside, v, {5, 5}, Tensor::from(std::vector<int32_t>{0, 1, 2, 1}, {2, 2}), k_cache, v_cache);
  append_keys(k, v, {0, 8}, Tensor::from(std::vector<int32_t>{1, 0, 1, 2}, {2, 2}), k_cache,
              v_cache);  // a shared prefix
}

}  // namespace
}  // namespace alibi::kernels
