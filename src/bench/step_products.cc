#include "bench/step_products.h"

#include <algorithm>
#include <string_view>
#include <tuple>

#include "bench/attention_inputs.h"
#include "bench/timing.h"
#include "core/check.h"
#include "nn/linear.h"
#include "nn/product_observer.h"

namespace alibi::bench {
namespace {

/// Memory of a parameter: its value, the rounded copy, or the gradient.
struct Known {
  const std::byte* begin;
  const std::byte* end;
  const Parameter* parameter;
};

class ParameterMemory {
 public:
  explicit ParameterMemory(const std::vector<Parameter*>& parameters) {
    for (const Parameter* parameter : parameters) {
      for (const Tensor* tensor : {&parameter->value, &parameter->rounded, &parameter->gradient}) {
        if (!tensor->defined()) continue;
        const auto* begin = static_cast<const std::byte*>(tensor->raw());
        known_.push_back({begin, begin + tensor->bytes(), parameter});
      }
    }
  }

  /// Null: no parameter's memory.
  const Known* find(const void* data) const {
    const auto* at = static_cast<const std::byte*>(data);
    const auto found =
        std::find_if(known_.begin(), known_.end(), [&](const Known& k) { return k.begin <= at && at < k.end; });
    return found == known_.end() ? nullptr : &*found;
  }

 private:
  std::vector<Known> known_;
};

/// "blocks.3.attn.Wqkv.weight" -> "attn.Wqkv"
std::string without_layer(std::string name) {
  constexpr std::string_view blocks = "blocks.", weight = ".weight";
  if (name.starts_with(blocks)) name.erase(0, name.find('.', blocks.size()) + 1);
  if (name.ends_with(weight)) name.erase(name.size() - weight.size());
  return name;
}

ProductKind kind_of(const nn::Product& product, const ParameterMemory& parameters) {
  ProductKind kind;
  kind.product = product;
  if (const Known* c = parameters.find(product.c.data)) {
    kind.parameter = without_layer(c->parameter->name);
    kind.pass = "dweight";
  } else if (const Known* b = parameters.find(product.b.data)) {
    kind.parameter = without_layer(b->parameter->name);
    kind.pass = product.b.transposed ? "y" : "dx";
  }
  return kind;
}

/// What makes two products alike.
auto signature(const ProductKind& kind) {
  const nn::Product& p = kind.product;
  const auto layout = [](const nn::Matrix& m) { return std::tuple(m.stride, m.transposed, m.dtype); };
  return std::tuple(kind.parameter, kind.pass, p.m, p.n, p.k, layout(p.a), layout(p.b), layout(p.c), p.bias != nullptr,
                    p.accumulate);
}

/// Elements from the first to the last of a matrix that is read as [rows, columns].
int64_t extent(const nn::Matrix& matrix, int64_t rows, int64_t columns) {
  if (matrix.transposed) std::swap(rows, columns);
  return (rows - 1) * matrix.stride + columns;
}

}  // namespace

std::vector<RecordedProduct> record_products(const std::function<void()>& work) {
  std::vector<RecordedProduct> recorded;
  const nn::ScopedProductObserver observer([&](const nn::Product& product, double seconds) {
    if (product.m > 0 && product.n > 0 && product.k > 0) recorded.push_back({product, seconds});
  });
  work();
  return recorded;
}

ProductKind kind_of(const nn::Product& product, const std::vector<Parameter*>& parameters) {
  return kind_of(product, ParameterMemory(parameters));
}

double ProductKind::flops() const {
  return 2 * static_cast<double>(product.m) * static_cast<double>(product.n) * static_cast<double>(product.k);
}

std::string ProductKind::operands() const {
  const bool backward = pass != "y";
  std::string text = product.accumulate ? "+= " : "";
  text += backward ? "dy" : "x";
  if (product.a.transposed) text += "'";
  text += pass == "dweight" ? " x" : " W";
  if (product.b.transposed) text += "'";
  if (product.bias != nullptr) text += " + bias";
  return text;
}

StepProducts::StepProducts(const std::vector<RecordedProduct>& step, const std::vector<Parameter*>& parameters,
                           uint64_t seed) {
  const ParameterMemory known(parameters);
  for (const RecordedProduct& recorded : step) {
    const nn::Product& product = recorded.product;
    ProductKind kind = kind_of(product, known);
    const auto same = std::find_if(kinds_.begin(), kinds_.end(),
                                   [&](const ProductKind& other) { return signature(other) == signature(kind); });
    kind_of_.push_back(static_cast<size_t>(same - kinds_.begin()));
    if (same == kinds_.end()) kinds_.push_back(std::move(kind));
    ++kinds_[kind_of_.back()].times;
    products_.push_back(product);
  }

  // The pools first grow to what the largest product needs, then the products get their places in them.
  const auto each_activation = [&](const auto& use) {
    for (nn::Product& p : products_) {
      if (known.find(p.a.data) == nullptr) use(p.a, Role::a, extent(p.a, p.m, p.k));
      if (known.find(p.b.data) == nullptr) use(p.b, Role::b, extent(p.b, p.k, p.n));
      if (known.find(p.c.data) == nullptr) use(p.c, Role::c, extent(p.c, p.m, p.n));
    }
  };
  std::map<std::pair<Role, DType>, int64_t> elements;
  each_activation([&](const nn::Matrix& matrix, Role role, int64_t size) {
    int64_t& most = elements[{role, matrix.dtype}];
    most = std::max(most, size);
  });
  for (const auto& [key, size] : elements) {
    const auto [role, type] = key;
    pools_[key] =
        role == Role::c ? Tensor({size}, type) : normal_tensor({size}, seed, static_cast<uint64_t>(role)).to(type);
  }
  each_activation([&](nn::Matrix& matrix, Role role, int64_t) { matrix.data = pools_.at({role, matrix.dtype}).raw(); });
}

std::vector<double> StepProducts::run() {
  std::vector<double> sums(kinds_.size());
  for (size_t i = 0; i < products_.size(); ++i) {
    sums[kind_of_[i]] += seconds_of([&] { nn::run_in_tasks(products_[i]); });
  }
  return sums;
}

std::vector<double> StepProducts::seconds_in(const std::vector<RecordedProduct>& step) const {
  check(step.size() == products_.size(), "[step products] a step of {} products, expected {} as in the one before",
        step.size(), products_.size());
  std::vector<double> sums(kinds_.size());
  for (size_t i = 0; i < step.size(); ++i) sums[kind_of_[i]] += step[i].seconds;
  return sums;
}

double StepProducts::flops() const {
  double sum = 0;
  for (const ProductKind& kind : kinds_) sum += static_cast<double>(kind.times) * kind.flops();
  return sum;
}

}  // namespace alibi::bench
