// Cases of attention with given positions: shapes, options and points of many kinds.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "alibi/attention_positions.h"
#include "testing.h"

namespace alibi::test {

/// How points lie.
enum class Pattern { random, grid_with_holes, duplicates, collinear, equal, clusters, far_apart };
inline constexpr Pattern all_patterns[] = {Pattern::random,    Pattern::grid_with_holes, Pattern::duplicates,
                                           Pattern::collinear, Pattern::equal,           Pattern::clusters,
                                           Pattern::far_apart};

/// [batch, length, dims] float32, integers of at most `extent` so that int32 can hold them too.
inline Tensor points(Pattern pattern, int64_t batch, int64_t length, int64_t dims, uint64_t seed, double extent = 40) {
  Tensor result = Tensor::empty({batch, length, dims});
  float* const values = result.data<float>();
  const core::Random random(seed);
  const auto draw = [&](int64_t i, double below) { return below * random.uniform(static_cast<uint64_t>(i)); };
  const int64_t side =
      static_cast<int64_t>(std::ceil(std::pow(1.4 * static_cast<double>(length), 1.0 / static_cast<double>(dims))));
  int64_t cell = 0;
  for (int64_t token = 0; token < batch * length; ++token) {
    if (token % length == 0) cell = 0;
    if (draw(token + 1000000, 1) < 0.3) ++cell;  // a hole
    int64_t rest = cell++;
    for (int64_t axis = 0; axis < dims; ++axis) {
      float& x = values[token * dims + axis];
      const int64_t i = token * dims + axis;
      switch (pattern) {
        case Pattern::random:
          x = static_cast<float>(std::round(draw(i, extent)));
          break;
        case Pattern::grid_with_holes:
          x = static_cast<float>(rest % side);
          rest /= side;
          break;
        case Pattern::duplicates:
          x = static_cast<float>(std::floor(draw(i, 3)) * 5);
          break;
        case Pattern::collinear:
          x = static_cast<float>(3 * (token % length) * (axis + 1));
          break;
        case Pattern::equal:
          x = 7;
          break;
        case Pattern::clusters:
          x = static_cast<float>((token % 4) * 1000 * (axis + 1)) + static_cast<float>(std::round(draw(i, 9)));
          break;
        case Pattern::far_apart:
          x = static_cast<float>((token % 2) * 100000) + static_cast<float>(std::round(draw(i, 30)));
          break;
      }
    }
  }
  return result;
}

struct SpatialCase {
  int64_t batch = 1, queries = 1, keys = 1, heads = 1, kv_heads = 1, head_dim = 16, dims = 2;
  AttentionPositionsOptions options = {};
  Pattern pattern = Pattern::random;
  bool integers = false;      ///< int32 positions
  bool shared_batch = false;  ///< one set of points for all batch entries
  bool self = false;          ///< keys have the positions of the queries
  DType dtype = DType::float32;
  uint64_t seed = 1;
  float input_scale = 1;

  std::string name() const {
    return fmt::format(
        "batch {} queries {} keys {} heads {}/{} head_dim {} dims {} pattern {} {} {} leading {} slopes {} tolerance "
        "{} "
        "sequences {} used {}/{} integers {} shared {} self {} seed {}",
        batch, queries, keys, heads, kv_heads, head_dim, dims, static_cast<int>(pattern),
        options.distance == Distance::euclidean ? "euclidean" : "manhattan", name_of(dtype), options.leading,
        options.alibi_slopes.size(), options.tolerance, options.cu_seqlens_q.size(), options.seqused_q.size(),
        options.seqused_k.size(), integers, shared_batch, self, seed);
  }
};

/// Random inputs, and outputs full of NaN.
struct SpatialTensors {
  explicit SpatialTensors(const SpatialCase& c)
      : q(random_tensor({c.batch, c.queries, c.heads, c.head_dim}, c.seed, c.input_scale, c.dtype)),
        k(random_tensor({c.batch, c.keys, c.kv_heads, c.head_dim}, c.seed + 1, c.input_scale, c.dtype)),
        v(random_tensor({c.batch, c.keys, c.kv_heads, c.head_dim}, c.seed + 2, 1, c.dtype)),
        dout(random_tensor({c.batch, c.queries, c.heads, c.head_dim}, c.seed + 3, 1, c.dtype)),
        out(Tensor::empty(q.shape(), c.dtype)),
        dq(Tensor::empty(q.shape(), c.dtype)),
        dk(Tensor::empty(k.shape(), c.dtype)),
        dv(Tensor::empty(v.shape(), c.dtype)) {
    const int64_t batch = c.shared_batch ? 1 : c.batch;
    positions.q = points(c.pattern, batch, c.queries, c.dims, c.seed + 4);
    if (!c.self) positions.k = points(c.pattern, batch, c.keys, c.dims, c.seed + 5);
    if (c.integers) {
      for (Tensor* of : {&positions.q, &positions.k}) {
        if (of->defined()) *of = to_integers(*of);
      }
    }
    for (Tensor* output : {&out, &dq, &dk, &dv}) output->fill(std::numeric_limits<float>::quiet_NaN());
  }

  static Tensor to_integers(const Tensor& floats) {
    Tensor result = Tensor::empty(floats.shape(), DType::int32);
    for (int64_t i = 0; i < floats.elements(); ++i) {
      result.data<int32_t>()[i] = static_cast<int32_t>(floats.data<float>()[i]) - 1000000;
    }
    return result;
  }

  void forward(const AttentionPositionsOptions& options) {
    attention_positions(q, k, v, positions, options, out, &state);
  }
  void backward(const AttentionPositionsOptions& options, Tensor* dslopes = nullptr) {
    attention_positions_backward(dout, q, k, v, out, positions, state, options, dq, dk, dv, dslopes);
  }

  AttentionPositions positions;
  Tensor q, k, v, dout;
  Tensor out, dq, dk, dv;
  AttentionPositionsState state;
};

/// Random cases with every pattern, kind of distance, padding, grouping and odd size; the same in every run.
inline std::vector<SpatialCase> random_spatial_cases(int count, uint64_t seed) {
  const core::Random random(seed);
  uint64_t drawn = 0;
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random.below(drawn++, static_cast<uint64_t>(n))); };
  const auto chance = [&](double p) { return random.uniform(drawn++) < p; };
  std::vector<SpatialCase> cases;
  for (int i = 0; i < count; ++i) {
    SpatialCase c;
    constexpr int64_t sizes[] = {1, 2, 7, 47, 48, 49, 63, 64, 65, 96, 130, 200, 333};
    c.batch = 1 + below(2);
    c.queries = sizes[below(std::size(sizes))];
    c.self = chance(0.5);
    c.keys = c.self ? c.queries : sizes[below(std::size(sizes))];
    c.kv_heads = 1 + below(3);
    c.heads = c.kv_heads * (1 + below(3));
    constexpr int64_t dims_of_heads[] = {1, 3, 8, 16, 24, 64};
    c.head_dim = dims_of_heads[below(std::size(dims_of_heads))];
    c.dims = 1 + below(3);
    c.pattern = all_patterns[static_cast<size_t>(i) % std::size(all_patterns)];
    c.integers = chance(0.3);
    c.shared_batch = chance(0.3);
    c.seed = seed * 1000 + static_cast<uint64_t>(i) * 10;
    AttentionPositionsOptions& o = c.options;
    o.distance = chance(0.5) ? Distance::euclidean : Distance::manhattan;
    if (chance(0.5)) o.leading = 1 + below(chance(0.2) ? 120 : 3);
    if (!chance(0.1)) {
      const int64_t slopes = (chance(0.2) ? c.batch : 1) * c.heads;
      for (int64_t h = 0; h < slopes; ++h) {
        o.alibi_slopes.push_back(chance(0.1) ? 0.0f : std::exp2(-8 * static_cast<float>(random.uniform(drawn++))));
      }
    }
    if (chance(0.2)) o.softmax_scale = chance(0.3) ? -0.2f : 0.3f;
    if (chance(0.25)) {  // packed sequences, some of them empty
      c.batch = 1;
      if (o.alibi_slopes.size() > static_cast<size_t>(c.heads)) o.alibi_slopes.resize(static_cast<size_t>(c.heads));
      o.cu_seqlens_q = {0, static_cast<int32_t>(below(c.queries + 1)), static_cast<int32_t>(c.queries)};
      o.cu_seqlens_k =
          c.self ? o.cu_seqlens_q
                 : std::vector<int32_t>{0, static_cast<int32_t>(below(c.keys + 1)), static_cast<int32_t>(c.keys)};
    }
    if (chance(0.3)) {
      const auto used = [&](const std::vector<int32_t>& offsets, int64_t length) {
        std::vector<int32_t> result;
        for (size_t s = 0; s < (offsets.empty() ? static_cast<size_t>(c.batch) : offsets.size() - 1); ++s) {
          result.push_back(static_cast<int32_t>(below((offsets.empty() ? length : offsets[s + 1] - offsets[s]) + 1)));
        }
        return result;
      };
      o.seqused_q = used(o.cu_seqlens_q, c.queries);
      o.seqused_k = used(o.cu_seqlens_k, c.keys);
    }
    cases.push_back(c);
  }
  return cases;
}

}  // namespace alibi::test
