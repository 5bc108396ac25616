#include "bench/record_sections.h"

#include <fmt/format.h>

#include <string>

#include "bench/step_products.h"
#include "bench/timing.h"
#include "core/parallel_log.h"
#include "nn/product_observer.h"

namespace alibi::bench {
namespace {

struct TimedProduct {
  nn::Product product;
  double begin, end;
};

/// "residual_norm_backward:262"
std::string name_of(const core::CallSite& site) { return fmt::format("{}:{}", site.function, site.line); }

std::string name_of(const nn::Product& product, const std::vector<Parameter*>& parameters) {
  const ProductKind kind = kind_of(product, parameters);
  return fmt::format("{} {} {} x {} x {} ", kind.parameter, kind.pass, product.m, product.n, product.k);
}

}  // namespace

Recording record_sections(const std::function<void()>& work, const std::vector<Parameter*>& parameters) {
  std::vector<TimedProduct> products;
  const nn::ScopedProductObserver observer([&](const nn::Product& product, double seconds) {
    const double end = now();
    products.push_back({product, end - seconds, end});
  });
  const core::ParallelLog log;
  double end = now();
  work();
  const double all_done = now();

  Recording recording;
  auto product = products.begin();
  for (const core::ParallelSection& section : log.sections()) {
    // The observer is called a little after a product's end, so its begin may seem to be after that of its section.
    while (product != products.end() && product->end < section.end) ++product;
    const bool multiplies = product != products.end() && product->begin < section.end;
    recording.sections.push_back(
        {.name = (multiplies ? name_of(product->product, parameters) : "") + name_of(section.site),
         .serial_seconds = section.begin - end,
         .seconds = section.seconds});
    end = section.end;
  }
  recording.serial_seconds = all_done - end;
  return recording;
}

}  // namespace alibi::bench
