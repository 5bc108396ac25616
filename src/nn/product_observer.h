// A look at what is multiplied, for measurements.
#pragma once

#include <functional>

#include "nn/onednn.h"

namespace alibi::nn {

/// A product that was computed, and how long that took. Its operands are only sure to exist during the call.
using ProductObserver = std::function<void(const Product& product, double seconds)>;

/// While it lives, it is told every product that this thread asks for (matmul, linear, linear_backward), in order.
class ScopedProductObserver {
 public:
  explicit ScopedProductObserver(ProductObserver observer);
  ~ScopedProductObserver();
  ScopedProductObserver(const ScopedProductObserver&) = delete;
  ScopedProductObserver& operator=(const ScopedProductObserver&) = delete;

 private:
  ProductObserver observer_;
  const ProductObserver* outer_;
};

/// This thread's, or null.
const ProductObserver* product_observer();

}  // namespace alibi::nn
