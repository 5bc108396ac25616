// The matrix products of a step of training: what it really multiplies is recorded, and run again without the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "alibi/language_model.h"
#include "nn/onednn.h"

namespace alibi::bench {

struct RecordedProduct {
  nn::Product product;
  double seconds = 0;  ///< where it was recorded
};

/// The products that this thread asks for while it does the work, in order; not those without elements.
std::vector<RecordedProduct> record_products(const std::function<void()>& work);

/// Products of one shape, and what they have to do with a parameter of the model.
struct ProductKind {
  std::string parameter;  ///< without the number of its layer: "attn.Wqkv"; empty: of none
  std::string pass;       ///< "y" (forward), "dx" or "dweight" (backward)
  nn::Product product;    ///< the first of them
  int64_t times = 0;      ///< in a step

  /// Of one of them: 2 for each multiplication and addition.
  double flops() const;
  /// "x W'": the operands, with what is read transposed, or "+= dy' x".
  std::string operands() const;
};

ProductKind kind_of(const nn::Product& product, const std::vector<Parameter*>& parameters);

/// Runs the products of a step again, back to back in their order, through the function that the layers use: the same
/// shapes, layouts, types, weights and gradients (which it spoils: a step sets them to zero first); one set of
/// activations serves all layers. Those of attention, which is one operator, are not among them.
class StepProducts {
 public:
  /// The model keeps its parameters where they were while the step ran.
  StepProducts(const std::vector<RecordedProduct>& step, const std::vector<Parameter*>& parameters, uint64_t seed);

  /// Returns the seconds of each kind.
  std::vector<double> run();
  /// Those of another step of the same model.
  std::vector<double> seconds_in(const std::vector<RecordedProduct>& step) const;

  /// In the order in which a step meets them.
  const std::vector<ProductKind>& kinds() const { return kinds_; }
  /// Of one run.
  double flops() const;

 private:
  enum class Role : uint8_t { a, b, c };

  std::vector<nn::Product> products_;
  std::vector<size_t> kind_of_;  // of each product
  std::vector<ProductKind> kinds_;
  std::map<std::pair<Role, DType>, Tensor> pools_;  // in place of activations
};

}  // namespace alibi::bench
