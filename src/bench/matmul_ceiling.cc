#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "alibi/runtime.h"
#include "bench/ceilings.h"
#include "bench/timing.h"
#include "core/format.h"
#include "core/parallel.h"
#include "nn/products.h"

namespace alibi::bench {
/// One product per thread.
struct MatmulCeiling::Products {
  Products(DType dtype, Layout layout, int64_t n) : size(n) {
    const nn::ProductProvider& provider = nn::product_provider();
    const bool packed = layout == Layout::packed && provider.product_in_own_layout != nullptr;
    for (int thread = 0; thread < threads(); ++thread) {
      products.push_back(packed ? provider.product_in_own_layout(dtype, n) : row_major(dtype, n));
    }
  }

  static std::function<void()> row_major(DType dtype, int64_t n) {
    constexpr float small = 0.01f;
    Tensor a({n, n}, dtype), b({n, n}, dtype);
    const Tensor c({n, n}, dtype);
    a.fill(small);
    b.fill(small);
    return [a, b, c, dtype, n] {
      const auto matrix = [&](const Tensor& tensor) { return nn::Matrix{tensor.raw(), n, false, dtype}; };
      nn::multiply({.m = n, .n = n, .k = n, .a = matrix(a), .b = matrix(b), .c = matrix(c)});
    };
  }

  /// Runs the product and returns its rate.
  double run() {
    const double seconds = seconds_of([&] {
      core::parallel_for(static_cast<int64_t>(products.size()), [&](int64_t thread) {
        for (int i = 0; i < repeats; ++i) products[static_cast<size_t>(thread)]();
      });
    });
    const auto n = static_cast<double>(size);
    return 2 * n * n * n * static_cast<double>(repeats) * static_cast<double>(products.size()) / seconds;
  }

  int64_t size;
  int repeats = 1;
  std::vector<std::function<void()>> products;
};

MatmulCeiling::MatmulCeiling(DType dtype, Layout layout) {
  for (const int64_t size : {512, 1024, 1536}) {
    auto products = std::make_unique<Products>(dtype, layout, size);
    products->repeats = static_cast<int>(std::max<int64_t>(1, (int64_t{1} << 30) / (size * size * size)));
    products->run();  // generates the code
    double best = 0;
    for (int run = 0; run < 2; ++run) best = std::max(best, products->run());
    if (best <= best_) continue;
    best_ = best;
    fastest_ = std::move(products);
  }
}
MatmulCeiling::~MatmulCeiling() = default;

double MatmulCeiling::run() {
  const double rate = fastest_->run();
  best_ = std::max(best_, rate);
  return rate;
}

int64_t MatmulCeiling::size() const { return fastest_->size; }

MatmulCeilings::MatmulCeilings(DType type)
    : asked_for(type),
      dtype(nn::product_provider().has_products(type) ? type : DType::float32),
      plain(dtype, MatmulCeiling::Layout::plain),
      packed(dtype, MatmulCeiling::Layout::packed) {}

std::string MatmulCeilings::describe() const {
  const std::string rate = fmt::format("{} GFLOP/s", core::format_integer(std::llround(best() / 1e9)));
  if (dtype == asked_for) return rate;
  return fmt::format("{} in {}; products in {} are left out, because {} does not support them on this CPU", rate,
                     name_of(dtype), name_of(asked_for), nn::product_provider().name);
}

}  // namespace alibi::bench
