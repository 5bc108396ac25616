// Forget gates (AttentionOptions::log_decay), against the reference and against calls that must give the same.
#include <cmath>
#include <functional>
#include <map>

#include "alibi/kv_cache.h"
#include "attention/amx/cases.h"
#include "attention/cases.h"
#include "attention/gates.h"

namespace alibi::kernels {
namespace {

using namespace test;

struct Results {
  Tensor out, lse, dq, dk, dv, dgates;
};

Results results_of(const AttentionCase& c, AttentionTensors& t) {
  Tensor dgates({c.batch, c.keys, c.heads});
  t.forward(c.options);
  t.backward(c.options, {.dlog_decay = c.options.log_decay ? &dgates : nullptr});
  return {t.out.clone(), t.state.lse.clone(), t.dq.clone(), t.dk.clone(), t.dv.clone(), dgates};
}

TEST(AttentionDecay, RandomCasesEqualTheReference) {
  const std::vector<Isa> isas = available_isas();
  const RuntimeGuard guard;
  std::map<DType, double> worst, worst_of_gates;
  size_t number = 0;
  for (const AttentionCase& c : cases_with_gates(300, 9000)) {
    SCOPED_TRACE(c.name());
    set_isa(isas[number++ % isas.size()]);
    AttentionTensors t(c);
    std::vector<double> out, lse;
    attention_reference(t.q, t.k, t.v, c.options, out, &lse);
    AttentionReferenceGradients expected;
    attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
    const Results found = results_of(c, t);
    const double tolerance = c.dtype == DType::float32 ? 5e-6 : 2e-2;
    const auto check_one = [&](const char* name, const Tensor& of, const std::vector<double>& right) {
      double scale = 1;
      for (const double x : right) scale = std::isfinite(x) ? std::max(scale, std::abs(x)) : scale;
      const double diff = max_abs_diff(doubles(of), right) / scale;
      EXPECT_TRUE(diff <= tolerance) << name << " differs by " << diff;
      double& most = (std::string(name) == "dgates" ? worst_of_gates : worst)[c.dtype];
      most = std::max(most, diff);
    };
    check_one("out", found.out, out);
    check_one("lse", found.lse, lse);
    check_one("dq", found.dq, expected.dq);
    check_one("dk", found.dk, expected.dk);
    check_one("dv", found.dv, expected.dv);
    check_one("dgates", found.dgates, expected.dlog_decay);
  }
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    RecordProperty(std::string("worst_") + name_of(dtype), fmt::format("{:.2e}", worst[dtype]));
    RecordProperty(std::string("worst_gates_") + name_of(dtype), fmt::format("{:.2e}", worst_of_gates[dtype]));
  }
}

/// Two heads with one key/value head, long enough for several blocks and chunks.
AttentionCase a_case(int64_t length = 500) {
  return {.queries = length, .keys = length, .heads = 2, .kv_heads = 1, .head_dim = 16};
}

class AttentionDecayInBf16 : public AttentionAmx {};

TEST_P(AttentionDecayInBf16, IsAsAccurateAsTheFloat32KernelOnTheSameValues) {
  uint64_t seed = 70;
  for (const Gates kind : {Gates::mild, Gates::strong, Gates::sharp, Gates::documents}) {
    for (const float dropout : {0.0f, 0.3f}) {
      for (const bool table : {false, true}) {
        AttentionCase c = table ? t5_case(300, 333, 4) : amx_case(300, 333, 4);
        c.kv_heads = 2;
        c.seed = seed++;
        c.options.dropout_p = dropout;
        c.options.log_decay = random_gates({1, c.keys, c.heads}, c.seed, kind);
        SCOPED_TRACE(c.name());
        AttentionTensors t(c);
        ASSERT_TRUE(supported(c, t));
        AttentionReferenceGradients expected;
        attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
        std::vector<double> out;
        attention_reference(t.q, t.k, t.v, c.options, out);
        const Results found = results_of(c, t);
        set_isa(Isa::avx2);  // its kernel computes in float32 and rounds the results
        const Results plain = results_of(c, t);
        set_isa(GetParam());
        const auto check_one = [&](const char* name, const Tensor& of, const Tensor& other,
                                   const std::vector<double>& right) {
          const double error = root_mean_square(doubles(of), right),
                       size = root_mean_square(right, std::vector<double>(right.size()));
          EXPECT_TRUE(error <= root_mean_square(doubles(other), right) + 0x1p-7 * size)
              << name << ": " << error << " of " << size;
          EXPECT_TRUE(max_abs_diff(doubles(of), right) <= 0x1p-5 * std::max(max_abs(right), 1e-3)) << name;
        };
        check_one("out", found.out, plain.out, out);
        check_one("dq", found.dq, plain.dq, expected.dq);
        check_one("dk", found.dk, plain.dk, expected.dk);
        check_one("dv", found.dv, plain.dv, expected.dv);
        check_one("dgates", found.dgates, plain.dgates, expected.dlog_decay);
      }
    }
  }
}

ALIBI_TEST_ON_BF16_ISAS(AttentionDecayInBf16);

TEST(AttentionDecay, ConstantGatesAreAlibi) {
  AttentionCase slopes = a_case(), gates = a_case();
  slopes.options.alibi_slopes = {0.25f, 0.01f};
  gates.options.log_decay = Tensor({1, 500, 2});
  for (int64_t i = 0; i < 1000; ++i) gates.options.log_decay->data<float>()[i] = i % 2 == 0 ? -0.25f : -0.01f;
  AttentionTensors t(slopes);
  for (const float tolerance : {0.0f, 0x1p-24f}) {
    slopes.options.tolerance = gates.options.tolerance = tolerance;
    const Results expected = results_of(slopes, t);
    const AttentionStats visited = t.state.stats;
    const Results found = results_of(gates, t);
    EXPECT_EQ(t.state.stats.blocks_total, visited.blocks_total);
    EXPECT_EQ(t.state.stats.blocks_visited, visited.blocks_visited);
    EXPECT_LE(max_abs_diff(found.lse, expected.lse), 2e-6);
    for (const auto& [a, b] : {std::pair{&found.out, &expected.out},
                               {&found.dq, &expected.dq},
                               {&found.dk, &expected.dk},
                               {&found.dv, &expected.dv}}) {
      EXPECT_LE(max_abs_diff(*a, *b), 5e-6);
    }
    // The gradient of a slope is that of minus all gates of its head.
    Tensor dslopes({2});
    t.forward(slopes.options);
    t.backward(slopes.options, {.dslopes = &dslopes});
    const std::vector<double> of_gates = doubles(found.dgates), of_slopes = doubles(dslopes);
    for (size_t head = 0; head < 2; ++head) {
      double sum = 0;
      for (size_t i = head; i < of_gates.size(); i += 2) sum -= of_gates[i];
      EXPECT_NEAR(sum, of_slopes[head], 1e-4 * (1 + std::abs(of_slopes[head])));
    }
  }
}

TEST(AttentionDecay, GatesOfZeroAreNoBias) {
  AttentionCase none = a_case(200), zeros = a_case(200);
  zeros.options.log_decay = Tensor({1, 200, 2});
  AttentionTensors t(none);
  for_each_isa([&] {
    const Results expected = results_of(none, t), found = results_of(zeros, t);
    EXPECT_TRUE(same_bits(found.out, expected.out));
    EXPECT_TRUE(same_bits(found.lse, expected.lse));
    EXPECT_TRUE(same_bits(found.dq, expected.dq));
    EXPECT_TRUE(same_bits(found.dk, expected.dk));
    EXPECT_TRUE(same_bits(found.dv, expected.dv));
  });
}

TEST(AttentionDecay, DocumentsArePackedSequences) {
  const std::vector<int32_t> begins = {0, 1, 50, 64, 130, 131, 259, 500};
  AttentionCase packed = a_case(), documents = a_case();
  packed.options.alibi_slopes = documents.options.alibi_slopes = {0.1f, 0.002f};
  packed.options.log_decay = random_gates({1, 500, 2}, 3, Gates::mild);
  documents.options.log_decay = packed.options.log_decay->clone();
  packed.options.cu_seqlens_q = packed.options.cu_seqlens_k = begins;
  for (size_t i = 1; i + 1 < begins.size(); ++i)
    documents.options.log_decay->slice(1, begins[i], begins[i] + 1).fill(document);
  AttentionTensors t(packed);
  t.k.slice(1, 131, 132).fill(std::numeric_limits<float>::quiet_NaN());  // is not seen after its document
  t.v.slice(1, 130, 131).fill(std::numeric_limits<float>::infinity());
  for (const float tolerance : {0.0f, 0x1p-24f}) {
    packed.options.tolerance = documents.options.tolerance = tolerance;
    const Results expected = results_of(packed, t), found = results_of(documents, t);
    int64_t total = 0;  // blocks from that of the document's first key to that of the row
    for (int64_t row = 0; row < 500; row += 48) {
      const int64_t begin = *(std::upper_bound(begins.begin(), begins.end(), static_cast<int32_t>(row)) - 1);
      total += 2 * ((std::min<int64_t>(row + 47, 499)) / 64 - begin / 64 + 1);
    }
    EXPECT_EQ(t.state.stats.blocks_total, total);
    for (const auto& [a, b] : {std::pair{&found.out, &expected.out},
                               {&found.lse, &expected.lse},
                               {&found.dq, &expected.dq},
                               {&found.dk, &expected.dk},
                               {&found.dv, &expected.dv},
                               {&found.dgates, &expected.dgates}}) {
      for (const auto& [first, last] : {std::pair<int64_t, int64_t>{0, 130}, {259, 500}}) {
        if (a == &found.lse) {
          EXPECT_LE(max_abs_diff(a->slice(2, first, last), b->slice(2, first, last)), 1e-6);
        } else {
          EXPECT_LE(max_abs_diff(a->slice(1, first, last), b->slice(1, first, last)), 1e-5);
        }
      }
    }
    for (size_t i = 1; i + 1 < begins.size(); ++i) {
      EXPECT_EQ(max_abs(doubles(found.dgates.slice(1, begins[i], begins[i] + 1))), 0);
    }
  }
}

TEST(AttentionDecay, GradientIsThatOfTheForwardPass) {
  AttentionCase c{.queries = 21, .keys = 24, .heads = 2, .kv_heads = 1, .head_dim = 8};
  c.options.alibi_slopes = {0.1f, 0};
  c.options.softcap = 3;
  c.options.query_offset = 9;  // the last queries are past the last key
  const AttentionTensors t(c);
  // Steps of float32 gates, with the derivative of the float64 reference.
  Tensor gates = random_gates({1, 24, 2}, 5, Gates::strong);
  for (int64_t i = 0; i < gates.elements(); ++i) gates.data<float>()[i] -= 0.1f;
  c.options.log_decay = gates;
  AttentionReferenceGradients expected;
  attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
  const std::vector<double> dout = doubles(t.dout);
  for (int64_t i = 0; i < gates.elements(); ++i) {
    constexpr float step = 0x1p-10f;
    float& gate = gates.data<float>()[i];
    const float at = gate;
    std::vector<double> above, below;
    gate = at + step;
    const double up = static_cast<double>(gate);
    attention_reference(t.q, t.k, t.v, c.options, above);
    gate = at - step;
    const double width = up - static_cast<double>(gate);
    attention_reference(t.q, t.k, t.v, c.options, below);
    gate = at;
    EXPECT_NEAR(expected.dlog_decay[static_cast<size_t>(i)], (test::dot(dout, above) - test::dot(dout, below)) / width,
                2e-5);
  }
}

TEST(AttentionDecay, SameBitsAtAnyThreadCount) {
  for (const float tolerance : {0.0f, 0x1p-24f}) {
    AttentionCase c{.batch = 2, .queries = 700, .keys = 700, .heads = 4, .kv_heads = 2, .head_dim = 16};
    c.options.log_decay = random_gates({2, 700, 4}, 2, Gates::documents);
    c.options.tolerance = tolerance;
    expect_same_bits_at_any_thread_count([&] {
      AttentionTensors t(c);
      const Results r = results_of(c, t);
      return std::vector<Tensor>{r.out, r.lse, r.dq, r.dk, r.dv, r.dgates};
    });
  }
}

TEST(AttentionDecay, IsPreciseAtAMillionPositions) {
  // The last rows of a long context, with gates before them that would leave no digits to float32 sums.
  constexpr int64_t length = 1 << 20, queries = 5;
  AttentionCase c{.queries = queries, .keys = length, .heads = 2, .kv_heads = 1, .head_dim = 4};
  Tensor gates({1, length, 2});
  const core::Random random(4);
  for (int64_t i = 0; i < length; ++i) {
    const float u = random.uniform(static_cast<uint64_t>(i));
    gates.data<float>()[2 * i] = i < length - 5000 ? -1000 * u : -0.002f * u;
    gates.data<float>()[2 * i + 1] = -1e-6f * u;
  }
  c.options.log_decay = gates;
  AttentionTensors t(c);
  std::vector<double> out, lse;
  attention_reference(t.q, t.k, t.v, c.options, out, &lse);
  for (const float tolerance : {0.0f, 0x1p-24f}) {
    c.options.tolerance = tolerance;
    t.forward(c.options);
    EXPECT_LE(max_abs_diff(t.state.lse, lse), 2e-6);
    EXPECT_LE(max_abs_diff(t.out, out), 2e-6);
    EXPECT_EQ(t.state.stats.blocks_visited<t.state.stats.blocks_total, tolerance> 0);
  }
}

/// A cache that was filled in pieces, cut, and forked, with the gates of its keys.
KvCache cache_with_gates(const Tensor& k, const Tensor& v, const Tensor& gates) {
  KvCache cache(k.size(0), k.size(2), k.size(3), k.dtype());
  const auto append = [&](KvCache& to, int64_t end) {
    const int64_t begin = to.length();
    to.append(k.slice(1, begin, end), v.slice(1, begin, end), gates.slice(1, begin, end));
  };
  const int64_t keys = k.size(1);
  append(cache, keys / 2);
  append(cache, keys / 2 + 1);
  cache.truncate(keys / 3);
  append(cache, 2 * keys / 3);
  KvCache fork = cache.fork();
  append(fork, keys);
  return fork;
}

TEST(AttentionDecay, CachesHoldTheGatesOfTheirKeys) {
  uint64_t seed = 0;
  for (const int64_t keys : {9, 200, 1600}) {
    for (const int64_t queries : {1, 3, 40}) {
      for (const Gates kind : {Gates::mild, Gates::strong, Gates::sharp, Gates::documents}) {
        AttentionCase c{.batch = 2, .queries = std::min(queries, keys), .keys = keys, .heads = 4, .kv_heads = 2};
        c.seed = ++seed;
        c.dtype = seed % 2 == 0 ? DType::float32 : DType::bfloat16;
        if (seed % 3 == 0) c.options.alibi_slopes = slopes(4);
        if (seed % 3 == 1) c.options.sinks = random_sinks(4, seed);
        if (seed % 5 == 0) c.options.sliding_window = 90;
        SCOPED_TRACE(c.name());
        AttentionTensors t(c);
        const Tensor gates = random_gates({c.batch, c.keys, c.heads}, seed, kind);
        std::vector<double> expected, lse;
        AttentionOptions whole = c.options;
        whole.log_decay = gates;
        attention_reference(t.q, t.k, t.v, whole, expected, &lse);
        KvCache cache = cache_with_gates(t.k, t.v, gates);
        for (const float tolerance : {0.0f, 0x1p-24f}) {
          c.options.tolerance = tolerance;
          for (const bool few : {true, false}) {
            if (!few) cache.own();
            if (!few && c.options.sliding_window > 0) {  // keys that no query sees any more
              const int64_t seen = c.keys - c.queries - c.options.sliding_window;
              if (seen > 128) cache.evict(std::vector<int64_t>{seen, seen - 64}, 1);
            }
            AttentionState state;
            t.out.fill(NAN);
            few ? attention_decode(t.q, cache, c.options, t.out, &state)
                : cached_attention(t.q, cache, c.options, t.out, seed % 2 == 0 ? &state : nullptr);
            EXPECT_LE(max_abs_diff(t.out, expected), (c.dtype == DType::float32 ? 3e-6 : 0x1p-7) * max_abs(expected));
            if (!few) continue;
            EXPECT_LE(max_abs_diff(state.lse, lse), 1e-5 * std::max(1.0, max_abs(lse)));
          }
        }
      }
    }
  }
}

/// Strong gates leave most keys unread.
TEST(AttentionDecay, DecodingSkipsWhatIsForgotten) {
  AttentionCase c{.queries = 1, .keys = 8000, .heads = 2, .kv_heads = 1};
  AttentionTensors t(c);
  KvCache cache(1, 1, c.head_dim);
  cache.append(t.k, t.v, random_gates({1, c.keys, 2}, 1, Gates::strong));
  const Tensor all = attention_decode(t.q, cache, {});
  AttentionState state;
  const Tensor some = attention_decode(t.q, cache, {.tolerance = 0x1p-24f}, &state);
  EXPECT_LE(max_abs_diff(some, all), 1e-6);
  EXPECT_LT(state.stats.blocks_visited, state.stats.blocks_total / 5);
}

TEST(AttentionDecay, ErrorsOfCaches) {
  const AttentionTensors t(AttentionCase{.queries = 1, .keys = 5, .heads = 4, .kv_heads = 2});
  KvCache cache(1, 2, 16);
  const Tensor gates = random_gates({1, 5, 4}, 1, Gates::mild);
  expect_error([&] { cache.append(t.k, t.v, gates.slice(1, 0, 4)); },
               {"log_decay has shape [1, 4, 4], expected float32 [1, 5,"});
  Tensor wrong = gates.clone();
  wrong.data<float>()[6] = 0.5f;
  expect_error([&] { cache.append(t.k, t.v, wrong); }, {"log_decay[0][1][2] is 0.5"});
  EXPECT_EQ(cache.length(), 0);
  cache.append(t.k, t.v, gates);
  expect_error([&] { cache.append(t.k, t.v); }, {"log_decay is not given, but the 5 keys of the cache have gates"});
  expect_error([&] { attention_decode(t.q, cache, {.log_decay = gates}); }, {"a cache has the gates of its keys"});
  expect_error([&] { attention_decode(t.q, cache, {.causal = false}); },
               {"the cache has gates, but attention is not causal"});
  expect_error([&] { attention_decode(t.q.slice(2, 0, 2), cache, {}); },
               {"q has 2 heads, expected 4, those of the gates"});
  EXPECT_EQ(cache.length(), 5);
  cache.truncate(0);  // then it may have keys without gates
  for (int i = 0; i < 2; ++i) cache.append(t.k, t.v);
  EXPECT_EQ(cache.length(), 10);
  KvCache plain(1, 2, 16);
  plain.append(t.k, t.v);
  expect_error([&] { plain.append(t.k, t.v, gates); }, {"log_decay is given, but the 5 keys of the cache have none"});
}

TEST(AttentionDecay, Errors) {
  const auto expect = [](const std::function<void(AttentionCase&)>& change, const char* part) {
    AttentionCase c{.batch = 2, .queries = 5, .keys = 7, .heads = 4, .kv_heads = 2};
    c.options.log_decay = Tensor({2, 7, 4});
    change(c);
    AttentionTensors t(c);
    expect_error([&] { t.forward(c.options); }, part);
  };
  const auto gate_of = [](float value) {
    return [value](AttentionCase& c) { c.options.log_decay->data<float>()[28 + 4 * 3 + 2] = value; };
  };
  expect(gate_of(1e-3f), "log_decay[1][3][2] is 0.001, expected -2^40 to 0");
  expect(gate_of(std::numeric_limits<float>::quiet_NaN()), "log_decay[1][3][2] is nan");
  expect(gate_of(-2e12f), "log_decay[1][3][2] is -2000000000000");
  expect(
      [](AttentionCase& c) {
        c.options.log_decay = Tensor({2, 7, 2});
      },
      "log_decay has shape [2, 7, 2], expected float32 [2, 7, 4]");
  expect([](AttentionCase& c) { c.options.log_decay = Tensor({2, 7, 4}, DType::bfloat16); }, "log_decay has shape");
  expect([](AttentionCase& c) { c.options.log_decay = Tensor(); }, "log_decay has shape");
  expect([](AttentionCase& c) { c.options.causal = false; }, "attention is not causal");

  AttentionCase c{.queries = 64, .keys = 64, .heads = 2, .kv_heads = 2};
  c.options.log_decay = Tensor({1, 64, 2});
  AttentionTensors t(c);
  KvCache cache(1, 2, 16);
  cache.append(t.k, t.v);
  Tensor one = Tensor::empty({1, 1, 2, 16});
  const Tensor q = t.q.slice(1, 63, 64);
  expect_error([&] { attention_decode(q, cache, c.options, one); }, "[attention_decode] log_decay is set");
  expect_error([&] { cached_attention(q, cache, c.options, one); }, "[cached_attention] log_decay is set");
  expect_error([&] { score_error(q, cache, c.options); }, "[score_error] log_decay is set");
  t.forward(c.options);
  Tensor wrong({1, 64, 1}), right({1, 64, 2});
  expect_error([&] { t.backward(c.options, {.dlog_decay = &wrong}); }, "dlog_decay has shape [1, 64, 1]");
  expect_error([&] { t.backward({}, {.dlog_decay = &right}); }, "log_decay is not");
}

}  // namespace
}  // namespace alibi::kernels
