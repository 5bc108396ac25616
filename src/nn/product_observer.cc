#include "nn/product_observer.h"

#include <utility>

namespace alibi::nn {
namespace {

thread_local const ProductObserver* current_product_observer = nullptr;

}  // namespace

ScopedProductObserver::ScopedProductObserver(ProductObserver observer)
    : observer_(std::move(observer)), outer_(std::exchange(current_product_observer, &observer_)) {}

ScopedProductObserver::~ScopedProductObserver() { current_product_observer = outer_; }

const ProductObserver* product_observer() { return current_product_observer; }

}  // namespace alibi::nn
