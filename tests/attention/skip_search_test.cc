// A search for inputs that violate the bounds of docs/explanation/skip-rule.md on what skipping changes. It tries
// random inputs of many kinds and then changes the worst of them in steps that come nearer to the bounds.
#include <cmath>
#include <functional>
#include <random>

#include "attention/cuda/emulated_device.h"
#include "attention/skip_change.h"

namespace alibi::kernels {
namespace {

using namespace test;

/// Draws cases and changes them.
class Search {
 public:
  explicit Search(uint64_t seed) : random_(seed) {}

  double uniform(double low, double high) { return std::uniform_real_distribution<double>(low, high)(random_); }
  int64_t integer(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  bool chance(double p) { return uniform(0, 1) < p; }

  enum class Form : uint8_t { linear, table, gates };

  AttentionCase a_case(DType dtype, bool capped, Form form) {
    AttentionCase c{.batch = integer(1, 2), .heads = 2, .kv_heads = integer(1, 2), .head_dim = 16, .dtype = dtype};
    c.keys = integer(200, 700);
    c.queries = chance(0.3) ? c.keys : integer(32, 100);
    c.seed = static_cast<uint64_t>(integer(1, 1000));
    c.input_scale = static_cast<float>(std::exp(uniform(-3, 1)));
    c.options.causal = chance(0.6);
    if (form == Form::table) {
      chance(0.3) ? set_buckets(c) : set_distances(c);
    } else if (form == Form::gates) {
      c.options.causal = true;
      set_gates(c);
      if (chance(0.3)) c.options.alibi_slopes = {slope(), slope()};
    } else {
      for (int64_t head = 0; head < c.heads; ++head) c.options.alibi_slopes.push_back(slope());
      if (c.options.alibi_slopes[0] == 0) c.options.alibi_slopes[1] = 0.1f;  // else the rule is not asked
      if (!c.options.causal && chance(0.5)) c.options.alibi_slopes_after = {slope(), slope()};
    }
    if (chance(0.5)) c.options.query_offset = integer(0, c.keys - c.queries);
    if (chance(0.2)) c.options.sliding_window = integer(50, 400);
    if (chance(0.2)) c.options.softmax_scale = static_cast<float>(uniform(-1, 1));
    if (c.seed % 4 == 0) c.options.sinks = random_sinks(c.heads, c.seed);
    if (capped) c.options.softcap = static_cast<float>(std::exp(uniform(std::log(0.1), std::log(30.0))));
    return c;
  }

  float tolerance(DType dtype) {
    return static_cast<float>(std::exp(dtype == DType::float32 ? uniform(std::log(1e-3), std::log(0.5))
                                                               : uniform(std::log(0.05), std::log(0.5))));
  }

  /// Makes inputs of one kind: some have tight bounds, others are like those of trained models.
  void shape(AttentionTensors& t) {
    switch (integer(0, 7)) {
      case 0:
        break;  // normal numbers
      case 1:
        add_common(t.k, uniform(0, 3));
        break;
      case 2:
        t.k.fill(0);
        break;
      case 3:  // every score is the product of two norms
        t.q.fill(static_cast<float>(uniform(0.2, 2)));
        t.k.fill(static_cast<float>(uniform(-1, 1)));
        break;
      case 4:
        stretch(t.k, uniform(2, 30));
        break;
      case 5:  // norms that grow with distance
        for (int64_t j = 0; j < t.k.size(1); ++j) {
          scale_row(t.k, j, 1 + uniform(0.01, 0.03) * static_cast<double>(t.k.size(1) - j));
        }
        break;
      case 6:
        add_common(t.q, uniform(0, 2));
        add_common(t.k, uniform(-2, 2));
        break;
      default:  // values that differ as far as they can
        for (int64_t j = 0; j < t.v.size(1); ++j) t.v.slice(1, j, j + 1).fill(chance(0.5) ? 1.0f : -1.0f);
    }
  }

  /// A small step from given inputs.
  void step(AttentionTensors& t) {
    const int64_t keys = t.k.size(1), at = integer(0, keys - 1);
    switch (integer(0, 4)) {
      case 0:
        scale_row(t.k, at, uniform(0.5, 2));
        break;
      case 1:
        scale_row(t.q, integer(0, t.q.size(1) - 1), uniform(0.5, 2));
        break;
      case 2:
        t.k.slice(1, at, at + 1).copy_from(t.q.slice(1, 0, 1).slice(2, 0, t.k.size(2)).to(t.k.dtype()));
        break;
      case 3:
        t.v.slice(1, 0, at + 1).fill(chance(0.5) ? 1.0f : -1.0f);
        break;
      default:  // the far half along what the near half is not
        for (int64_t j = 0; j < at; ++j) scale_row(t.k, j, 1 + uniform(0, 0.2));
    }
  }

 private:
  float slope() {
    const double kind = uniform(0, 1);
    return kind < 0.1 ? 0 : kind < 0.15 ? 100 : static_cast<float>(std::exp(uniform(std::log(1e-3), std::log(1.0))));
  }
  /// A bias by distance of every shape: concave, linear or convex with noise, a dip, or a step, of which the rule knows
  /// all.
  void set_distances(AttentionCase& c) {
    const int64_t farthest = integer(100, 800), rows = c.options.causal ? farthest + 1 : 2 * farthest + 1;
    Tensor table({rows, c.heads});
    for (int64_t head = 0; head < c.heads; ++head) {
      const int64_t kind = integer(0, 5);
      const double size = std::exp(uniform(std::log(0.01), std::log(2))), noise = kind < 3 ? uniform(0, 2) : 0;
      const double step = uniform(4, 10), edge = uniform(1, 100);
      for (int64_t row = 0; row < rows; ++row) {
        const auto d = static_cast<double>(std::abs(row - (c.options.causal ? 0 : farthest)));
        const double value = kind == 0   ? size * d * d / 100
                             : kind == 1 ? size * d
                             : kind == 2 ? 10 * size * std::log(1 + d)
                             : kind < 5  ? (d < edge         ? 0
                                            : d < edge + 200 ? 3 * step
                                                             : step)
                                         : (d < edge ? 0 : step);
        table.data<float>()[row * c.heads + head] = static_cast<float>(noise * uniform(-1, 1) - value);
      }
    }
    c.options.bias_by_distance = table;
  }
  /// T5's buckets, which mostly fall.
  void set_buckets(AttentionCase& c) {
    c.options.buckets = random_buckets(c.heads, c.seed, 32, static_cast<int>(integer(40, 300)));
    const double fall = uniform(0.2, 3);
    for (int64_t row = 0; row < 32; ++row) {
      const auto bucket = static_cast<double>(c.options.causal ? row : row % 16);
      for (int64_t head = 0; head < c.heads; ++head) {
        c.options.buckets->table.data<float>()[row * c.heads + head] -= static_cast<float>(fall * bucket);
      }
    }
  }
  /// Gates that are alike, rare and sharp, in stretches, or at single edges of blocks, and documents.
  void set_gates(AttentionCase& c) {
    Tensor gates({c.batch, c.keys, c.heads});
    for (int64_t b = 0; b < c.batch; ++b) {
      for (int64_t head = 0; head < c.heads; ++head) {
        const int64_t kind = integer(0, 4), edge = integer(1, 64);
        const double size = std::exp(uniform(std::log(1e-3), std::log(0.3))), documents = chance(0.2) ? 0.01 : 0;
        for (int64_t j = 0; j < c.keys; ++j) {
          const double gate = kind == 0   ? size
                              : kind == 1 ? size * uniform(0, 2)
                              : kind == 2 ? (chance(0.02) ? 50 * size : 0)
                              : kind == 3 ? (j / edge % 3 == 0 ? 5 * size : 0)
                                          : (j % 64 == edge % 64 ? 64 * size : 0);
          gates.data<float>()[(b * c.keys + j) * c.heads + head] =
              chance(documents) ? -std::numeric_limits<float>::infinity() : static_cast<float>(-gate);
        }
      }
    }
    c.options.log_decay = gates;
  }
  static void for_each_value(Tensor& tensor, const std::function<float(float, int64_t)>& change) {
    Tensor wide = tensor.to(DType::float32);
    if (tensor.dtype() == DType::float32) wide = tensor.clone();
    for (int64_t i = 0; i < wide.elements(); ++i) wide.data<float>()[i] = change(wide.data<float>()[i], i);
    tensor.copy_from(wide.to(tensor.dtype()));
  }
  void add_common(Tensor& tensor, double size) {
    const int64_t dim = tensor.size(3);
    std::vector<float> common;
    for (int64_t d = 0; d < dim; ++d) common.push_back(static_cast<float>(size * uniform(-1, 1)));
    for_each_value(tensor, [&](float x, int64_t i) { return x + common[static_cast<size_t>(i % dim)]; });
  }
  void stretch(Tensor& tensor, double most) {
    for (int64_t n = integer(1, 5); n > 0; --n) scale_row(tensor, integer(0, tensor.size(1) - 1), uniform(1, most));
  }
  static void scale_row(Tensor& tensor, int64_t row, double factor) {
    Tensor part = tensor.slice(1, row, row + 1);
    for_each_value(part, [&](float x, int64_t) { return static_cast<float>(factor) * x; });
  }

  std::mt19937_64 random_;
};

/// The worst ratio of change and bound that a search finds; every one is at most 1.
SkipChange worst_found(uint64_t seed, DType dtype, int cases, int steps, bool capped = false,
                       Search::Form form = Search::Form::linear, Device device = Device::cpu) {
  Search search(seed);
  SkipChange worst;
  const auto change_of = [&](const AttentionCase& c, AttentionTensors t, float tolerance, double noise) {
    for (Tensor* tensor : {&t.q, &t.k, &t.v, &t.dout, &t.out, &t.dq, &t.dk, &t.dv}) *tensor = tensor->to(device);
    return skip_change(c, t, tolerance, noise);
  };
  // The rounding of the data type; that of bfloat16 results hides the changes of smaller tolerances.
  const double noise = dtype == DType::float32 ? 3e-6 : 0.02;
  for (int i = 0; i < cases; ++i) {
    const AttentionCase c = search.a_case(dtype, capped, form);
    const float tolerance = search.tolerance(dtype);
    SCOPED_TRACE(fmt::format("tolerance {} {}", tolerance, c.name()));
    AttentionTensors t(c);
    search.shape(t);
    SkipChange best = change_of(c, t, tolerance, noise);
    EXPECT_TRUE(best.worst() <= 1) << best.name();
    for (int n = 0; n < steps; ++n) {
      AttentionTensors next(c);
      next.q = t.q.clone();
      next.k = t.k.clone();
      next.v = t.v.clone();
      search.step(next);
      const SkipChange change = change_of(c, next, tolerance, noise);
      EXPECT_TRUE(change.worst() <= 1) << change.name();
      if (!(change.worst() > best.worst())) continue;
      best = change;
      t = std::move(next);
    }
    if (best.worst() > worst.worst()) worst = best;
  }
  return worst;
}

TEST(AttentionSkipSearch, FindsNoViolation) {
  for_each_isa([&] {
    const SkipChange worst = worst_found(1, DType::float32, 10, 4);
    RecordProperty(std::string("worst_") + name_of(isa()), worst.name());
    EXPECT_GT(worst.worst(), 0.3) << "a search that comes nowhere near the bounds: " << worst.name();
  });
}

TEST(AttentionSkipSearch, FindsNoViolationWithASoftcap) {
  for_each_isa([&] {
    const SkipChange worst = worst_found(3, DType::float32, 14, 4, true);
    RecordProperty(std::string("worst_") + name_of(isa()), worst.name());
    EXPECT_GT(worst.worst(), 0.3) << "a search that comes nowhere near the bounds: " << worst.name();
  });
}

TEST(AttentionSkipSearch, FindsNoViolationInBfloat16) {
  const SkipChange worst = worst_found(2, DType::bfloat16, 12, 4);  // AMX where there is any
  RecordProperty("worst", worst.name());
  EXPECT_GT(worst.worst(), 0.3) << worst.name();
}

TEST(AttentionSkipSearch, FindsNoViolationWithTables) {
  for_each_isa([&] {
    const SkipChange worst = worst_found(4, DType::float32, 16, 3, false, Search::Form::table);
    RecordProperty(std::string("worst_") + name_of(isa()), worst.name());
    EXPECT_GT(worst.worst(), 0.3) << "a search that comes nowhere near the bounds: " << worst.name();
  });
  const SkipChange capped = worst_found(6, DType::float32, 10, 3, true, Search::Form::table);
  EXPECT_GT(capped.worst(), 0.1) << capped.name();
}

TEST(AttentionSkipSearch, FindsNoViolationWithGates) {
  for_each_isa([&] {
    const SkipChange worst = worst_found(7, DType::float32, 16, 4, false, Search::Form::gates);
    RecordProperty(std::string("worst_") + name_of(isa()), worst.name());
    EXPECT_GT(worst.worst(), 0.3) << "a search that comes nowhere near the bounds: " << worst.name();
  });
  const SkipChange capped = worst_found(8, DType::float32, 10, 3, true, Search::Form::gates);
  EXPECT_GT(capped.worst(), 0.1) << capped.name();
}

TEST(AttentionSkipSearch, FindsNoViolationWithGatesInBfloat16) {
  const SkipChange worst = worst_found(9, DType::bfloat16, 20, 4, false, Search::Form::gates);
  RecordProperty("worst", worst.name());
  EXPECT_GT(worst.worst(), 0.1) << worst.name();
}

TEST(AttentionSkipSearch, FindsNoViolationOnAGpu) {
  const EmulatedDevice device;
  for (const Search::Form form : {Search::Form::linear, Search::Form::gates}) {
    const SkipChange worst = worst_found(10, DType::bfloat16, 6, 3, false, form, Device::cuda);
    RecordProperty(form == Search::Form::gates ? "worst_of_gates" : "worst", worst.name());
    EXPECT_GT(worst.worst(), 0.1) << worst.name();
  }
}

TEST(AttentionSkipSearch, FindsNoViolationWithTablesInBfloat16) {
  const SkipChange worst = worst_found(5, DType::bfloat16, 20, 4, false, Search::Form::table);
  RecordProperty("worst", worst.name());
  EXPECT_GT(worst.worst(), 0.1) << worst.name();
}

}  // namespace
}  // namespace alibi::kernels
