// Sinusoidal positions (Vaswani et al. 2017, section 3.5): sines and cosines of the position, added to the input.
#include <algorithm>
#include <mutex>

#include "model/position.h"
#include "nn/positions.h"

namespace alibi::model::positions {
namespace {

class Sinusoidal : public InputPositions {
 public:
  using InputPositions::InputPositions;

  bool scales_embeddings() const override { return true; }
  void enter(const Tensor& x, int64_t first, Tensor& y) const override {
    const int64_t end = first + x.size(1);
    nn::add_positions(x, table(end).slice(0, first, end), y);
  }

 private:
  /// Returns a table of at least `length` rows. It grows to the longest length requested. Several threads may call
  /// this. Reading token by token requests one row more each time, so growth must be rare.
  Tensor table(int64_t length) const {
    const std::lock_guard lock(mutex_);
    if (!table_.defined() || table_.size(0) < length) {
      const int64_t held = table_.defined() ? table_.size(0) : 0;
      Tensor table = Tensor::empty({std::max(length, held + held / 2), config_.d_model}, DType::float32);
      nn::sinusoids(table);
      table_ = table;
    }
    return table_;
  }

  mutable std::mutex mutex_;
  mutable Tensor table_;
};

}  // namespace

PositionMethod sinusoidal() {
  return {
      .name = "sinusoidal",
      .formula = "input + sin and cos of i 10000^(-2 d / d_model)",
      .paper = "Vaswani et al. 2017, arXiv 1706.03762",
      .cost = "no parameters; every key is visited, unless a bias is added",
      .make = make_part<InputPositions, Sinusoidal>,
      .style = {"sinusoidal", "#0072B2", "#0069A3", "#56B4E9", "#6FC0EE", report::Marker::square},
  };
}

}  // namespace alibi::model::positions
