// What the attention tests share (see cases.h), and a test of the plain formula itself.
#include "attention/cases.h"

#include <cmath>
#include <cstdlib>

#include "attention/gates.h"

namespace alibi::test {
namespace {

int64_t pick(const core::Random& random, uint64_t& at, std::initializer_list<int64_t> choices) {
  return choices.begin()[random.below(at++, choices.size())];
}

void random_bias(const core::Random& random, uint64_t& at, AttentionCase& c) {
  AttentionOptions& options = c.options;
  const auto heads = static_cast<size_t>(c.heads);
  switch (random.below(at++, 6)) {
    case 0:
      break;  // no bias
    case 1:
      options.buckets = random_buckets(c.heads, c.seed + 9, pick(random, at, {8, 32}),
                                       static_cast<int>(pick(random, at, {20, 64, 128})));
      break;
    case 2:  // a slope for each head of each batch entry
      for (size_t i = 0; i < heads * static_cast<size_t>(c.batch); ++i)
        options.alibi_slopes.push_back(random.uniform(at++));
      break;
    case 3:  // other slopes after the query, some heads seeing one direction only
      options.alibi_slopes = slopes(static_cast<int>(c.heads));
      if (options.causal) break;
      for (size_t i = 0; i < heads; ++i) {
        options.alibi_slopes_after.push_back(i % 3 == 0 ? std::numeric_limits<float>::infinity()
                                                        : random.uniform(at++));
        if (i % 3 == 1) options.alibi_slopes[i] = std::numeric_limits<float>::infinity();
      }
      break;
    default:
      options.alibi_slopes = slopes(static_cast<int>(c.heads));
  }
}

/// The same values within a wider tensor.
Tensor strided(const Tensor& gates) {
  Tensor wide({gates.size(0), gates.size(1), gates.size(2) + 3});
  Tensor part = wide.slice(2, 2, gates.size(2) + 2);
  part.copy_from(gates);
  return part;
}

float rounded(float value, DType dtype) {
  return dtype == DType::bfloat16  ? static_cast<float>(bfloat16(value))
         : dtype == DType::float16 ? static_cast<float>(float16(value))
                                   : value;
}

}  // namespace

std::vector<AttentionCase> random_cases(int count, uint64_t seed) {
  if (const char* wanted = std::getenv("ALIBI_TEST_CASES")) count = std::atoi(wanted);
  const core::Random random(seed);
  uint64_t at = 0;
  std::vector<AttentionCase> cases;
  for (int i = 0; i < count; ++i) {
    AttentionCase c;
    c.seed = seed + 100 * static_cast<uint64_t>(i);
    c.batch = pick(random, at, {1, 1, 2});
    c.queries = pick(random, at, {1, 2, 47, 48, 49, 63, 64, 65, 130, 257});
    c.keys = pick(random, at, {c.queries, c.queries, c.queries, 1, 63, 65, 200});
    c.heads = pick(random, at, {1, 3, 4, 8, 12});
    c.kv_heads = c.heads / pick(random, at, {1, 1, c.heads, c.heads % 2 == 0 ? 2 : 1});
    c.head_dim = pick(random, at, {1, 8, 16, 20, 33, 64, 64, 80, 128, 256});
    if (c.head_dim > 64 && c.heads > 4) c.heads = c.kv_heads = 2;
    c.options.causal = random.below(at++, 3) != 0;
    random_bias(random, at, c);
    c.options.query_offset = pick(random, at, {0, 0, 0, 1, 100, c.keys, 100000, -30});
    c.options.sliding_window = pick(random, at, {0, 0, 0, 1, 10, 100});
    if (!c.options.causal) c.options.sliding_window_after = pick(random, at, {0, 0, -1, 1, 30, 200});
    if (random.below(at++, 4) == 0) c.options.softmax_scale = 0.3f;
    if (random.below(at++, 4) == 0) c.options.softcap = static_cast<float>(pick(random, at, {1, 3, 30}));
    // Of rows that are far from the keys, a sink has all the weight.
    if (i % 3 == 0 && *c.options.query_offset < 1000) c.options.sinks = random_sinks(c.heads, c.seed);
    cases.push_back(c);
  }
  return cases;
}

std::vector<float> random_sinks(int64_t heads, uint64_t seed) {
  const core::Random random(seed);
  std::vector<float> sinks;
  for (uint64_t h = 0; h < static_cast<uint64_t>(heads); ++h) sinks.push_back(8 * random.uniform(h) - 4);
  if (heads > 2) sinks.back() = -std::numeric_limits<float>::infinity();
  return sinks;
}

std::vector<AttentionCase> cases_with_gates(int count, uint64_t seed) {
  std::vector<AttentionCase> cases = random_cases(count, seed);
  const core::Random random(seed + 1);
  uint64_t at = 0;
  for (AttentionCase& c : cases) {
    AttentionOptions& options = c.options;
    options.causal = true;
    options.alibi_slopes_after.clear();
    options.sliding_window_after = 0;
    if (options.query_offset == 0 && random.below(at++, 2) == 0) options.query_offset.reset();
    c.dtype = random.below(at++, 2) == 0   ? DType::float32
              : random.below(at++, 2) == 0 ? DType::bfloat16
                                           : DType::float16;
    // The scores of a row with one key have no gradient; with dropout the kernels find its rounding.
    if (random.below(at++, 4) == 0 && c.keys > 1 && options.sliding_window != 1) options.dropout_p = 0.2f;
    if (random.below(at++, 3) == 0) options.tolerance = 0x1p-24f;
    const auto kind = static_cast<Gates>(random.below(at++, 4));
    Tensor gates = random_gates({c.batch, c.keys, c.heads}, c.seed + 7, kind);
    if (c.batch == 1 && c.queries > 40 && c.keys > 40 && random.below(at++, 2) == 0) {
      const auto queries = static_cast<int32_t>(c.queries), keys = static_cast<int32_t>(c.keys);
      options.cu_seqlens_q = {0, 1, 30, 30, queries};
      options.cu_seqlens_k = {0, 11, 40, keys, keys};
      if (std::ssize(options.alibi_slopes) > c.heads) options.alibi_slopes.resize(static_cast<size_t>(c.heads));
    } else if (random.below(at++, 4) == 0) {
      for (int64_t b = 0; b < c.batch; ++b) {
        options.seqused_k.push_back(static_cast<int32_t>(c.keys - b));
        options.leftpad_k.push_back(static_cast<int32_t>(std::min<int64_t>(c.keys - b, b + 1)));
      }
    }
    options.log_decay = random.below(at++, 2) == 0 ? gates : strided(gates);
  }
  return cases;
}

PlainResult plain_attention(const AttentionCase& c, const AttentionTensors& t, bool gradients) {
  const AttentionOptions& options = c.options;
  const std::vector<float> q = t.q.to_floats(), k = t.k.to_floats(), v = t.v.to_floats(), dout = t.dout.to_floats();
  const std::vector<float> table = table_of(options).defined() ? table_of(options).to_floats() : std::vector<float>();
  const float scale =
      options.softmax_scale != 0 ? options.softmax_scale : 1 / std::sqrt(static_cast<float>(c.head_dim));
  std::vector<float> out(q.size()), dq(q.size()), dk(k.size()), dv(v.size());
  const auto dot = [&](const float* a, const float* b) {
    float sum = 0;
    for (int64_t i = 0; i < c.head_dim; ++i) sum += a[i] * b[i];
    return sum;
  };
  std::vector<float> p(static_cast<size_t>(c.keys)), dp(p.size()), derivative(p.size(), 1.0f);
  for (int64_t row = 0; row < c.batch * c.queries * c.heads; ++row) {
    const int64_t b = row / (c.queries * c.heads), i = row / c.heads % c.queries, h = row % c.heads;
    const auto slope_of = [&](const std::vector<float>& slopes) {
      return slopes.empty() ? 0.0f : slopes[static_cast<size_t>(b * c.heads + h) % slopes.size()];
    };
    const auto key_at = [&](int64_t j) {
      return static_cast<size_t>(((b * c.keys + j) * c.kv_heads + h / (c.heads / c.kv_heads)) * c.head_dim);
    };
    const auto query_at = static_cast<size_t>(row * c.head_dim);
    const float before = slope_of(options.alibi_slopes);
    const float after = options.alibi_slopes_after.empty() ? before : slope_of(options.alibi_slopes_after);
    const float infinity = std::numeric_limits<float>::infinity();
    const int64_t nearest = std::clamp<int64_t>(options.query_offset.value_or(c.keys - c.queries) + i, 0, c.keys - 1);
    // The scores of far rows are counted from their nearest key, and so is the sink.
    const int64_t position = options.query_offset.value_or(c.keys - c.queries) + i;
    const bool slides = !options.buckets && !options.bias_by_distance;
    const float slope_beyond = position > nearest ? before : after;
    const float beyond = slides && position != nearest && slope_beyond < infinity
                             ? static_cast<float>(std::abs(position - nearest)) * slope_beyond
                             : 0;
    const float sink = options.sinks.empty() ? -infinity : options.sinks[static_cast<size_t>(h)] + beyond;
    float max = sink;
    for (int64_t j = 0; j < c.keys; ++j) {
      const int64_t distance = options.query_offset.value_or(c.keys - c.queries) + i - j;
      float& s = p[static_cast<size_t>(j)];
      s = -infinity;
      if (options.causal && distance < 0) continue;
      const int64_t window =
          distance < 0 && options.sliding_window_after != 0 ? options.sliding_window_after : options.sliding_window;
      if (window > 0 && std::abs(distance) >= window) continue;
      const float slope = distance > 0 ? before : distance < 0 ? after : 0;
      if (slope == infinity) continue;
      s = scale * dot(&q[query_at], &k[key_at(j)]);
      if (options.softcap > 0) {
        const float tanh = std::tanh(s / options.softcap);
        s = options.softcap * tanh;
        derivative[static_cast<size_t>(j)] = 1 - tanh * tanh;
      }
      if (options.buckets) {
        const int bucket = relative_position_bucket(
            distance, options.causal, static_cast<int>(options.buckets->table.size(0)), options.buckets->max_distance);
        s += table[static_cast<size_t>(bucket * c.heads + h)];
      } else if (options.bias_by_distance) {
        const int64_t rows = options.bias_by_distance->size(0), zero = options.causal ? 0 : rows / 2;
        s += table[static_cast<size_t>(std::clamp<int64_t>(distance + zero, 0, rows - 1) * c.heads + h)];
      } else {
        s -= slope * static_cast<float>(std::abs(nearest - j));
      }
      max = std::max(max, s);
    }
    if (max == -infinity) continue;
    float sum = std::exp(sink - max);
    for (float& s : p) sum += s = std::exp(s - max);
    for (int64_t j = 0; j < c.keys; ++j) {
      float& weight = p[static_cast<size_t>(j)];
      if (weight == 0) continue;  // not seen, or as good as
      weight = rounded(weight / sum, c.dtype);
      float* to = &out[query_at];
      const float* value = &v[key_at(j)];
      for (int64_t n = 0; n < c.head_dim; ++n) to[n] += weight * value[n];
    }
    if (!gradients) continue;
    float delta = 0;
    for (int64_t n = 0; n < c.head_dim && !options.sinks.empty(); ++n) {
      // The weights of the keys do not sum to one, so its rounding does not cancel. Kernels have only the rounded
      // output.
      delta += dout[query_at + static_cast<size_t>(n)] * rounded(out[query_at + static_cast<size_t>(n)], c.dtype);
    }
    for (int64_t j = 0; j < c.keys; ++j) {
      const auto y = static_cast<size_t>(j);
      if (p[y] == 0) continue;
      dp[y] = rounded(dot(&dout[query_at], &v[key_at(j)]), c.dtype);
      if (options.sinks.empty()) delta += p[y] * dp[y];
    }
    for (int64_t j = 0; j < c.keys; ++j) {
      const auto y = static_cast<size_t>(j);
      if (p[y] == 0) continue;
      const float ds = rounded(scale * derivative[y] * p[y] * (dp[y] - delta), c.dtype);
      float *to_q = &dq[query_at], *to_k = &dk[key_at(j)], *to_v = &dv[key_at(j)];
      const float *query = &q[query_at], *key = &k[key_at(j)], *dout_row = &dout[query_at];
      for (int64_t n = 0; n < c.head_dim; ++n) {
        to_q[n] += ds * key[n];
        to_k[n] += ds * query[n];
        to_v[n] += p[y] * dout_row[n];
      }
    }
  }
  const auto finished = [&](const std::vector<float>& values) {
    std::vector<double> result;
    for (const float value : values) result.push_back(static_cast<double>(rounded(value, c.dtype)));
    return result;
  };
  return {finished(out), finished(dq), finished(dk), finished(dv)};
}

TEST(AttentionYardstick, PlainAttentionIsTheReferenceWithinRounding) {
  std::vector<AttentionCase> cases = random_cases(25, 77);
  for (const AttentionCase& c : cases_by_distance()) cases.push_back(c);
  for (const AttentionCase& c : cases) {
    SCOPED_TRACE(c.name());
    const AttentionTensors t(c);
    std::vector<double> out;
    attention_reference(t.q, t.k, t.v, c.options, out);
    AttentionReferenceGradients gradients;
    attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, gradients);
    const PlainResult plain = plain_attention(c, t, true);
    EXPECT_LE(relative_diff(plain.out, out), 1e-5);
    EXPECT_LE(relative_diff(plain.dq, gradients.dq), 1e-4);
    EXPECT_LE(relative_diff(plain.dk, gradients.dk), 1e-4);
    EXPECT_LE(relative_diff(plain.dv, gradients.dv), 1e-4);
  }
}

}  // namespace alibi::test
