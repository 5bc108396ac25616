// A bias from a table [rows, heads], with a row for each distance or for each bucket of distances (T5, Raffel et al.
// 2020). The table is read where it lies; nothing is computed from it that a call does not use.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "alibi/tensor.h"
#include "attention/bias/bias.h"

namespace alibi::kernels {

/// The rows of a side, from the nearest to the farthest: first, first + step, ...
struct TableSide {
  int64_t first = 0, step = 1, count = 1;
};

class BiasTable {
 public:
  /// Row i of a side holds the distances from starts[i] to starts[i + 1] - 1, or distance i if there are no starts. The
  /// last one also holds all distances beyond. `farthest`: at this distance and beyond the bias is level.
  BiasTable(const Tensor& values, const TableSide& before, const TableSide& after, std::vector<int64_t> starts,
            int64_t farthest);

  int64_t rows() const { return values_.size(0); }
  int64_t heads() const { return values_.size(1); }
  int64_t farthest() const { return farthest_; }
  int64_t row(int64_t distance) const;
  float at(int64_t row, int64_t head) const { return data_[row * row_stride_ + head * head_stride_]; }

  /// What is computed from all values, when a call first asks for it.
  struct Summary {
    std::vector<float> columns;    ///< [heads][rows]: the values
    std::vector<float> magnitude;  ///< [heads]: of the values, or infinity if any is not finite
    std::vector<float> top;        ///< [heads]: the largest value
    std::vector<float> beyond[2];  ///< of each side, [heads][rows of the side]: the largest value from a row on
  };
  const Summary& summary() const;
  /// values[i] = unit * the value at distance first + i.
  void read(int64_t head, int64_t first, int64_t count, float unit, float* values) const;
  const TableSide& side(Side side) const { return sides_[static_cast<size_t>(side)]; }
  /// The number of a row, counted from the nearest of its side.
  int64_t index(Side side, int64_t distance) const;
  /// The nearest distance of a row.
  int64_t start(int64_t index) const { return starts_.empty() ? index : starts_[static_cast<size_t>(index)]; }
  /// Calls visit(row, n) for the rows of the distances first, first + 1, ..., of which n neighbours have the same row.
  template <class Visit>
  void each_row(int64_t first, int64_t count, const Visit& visit) const;

 private:
  Tensor values_;
  const float* data_;
  int64_t row_stride_, head_stride_;
  TableSide sides_[2];
  std::vector<int64_t> starts_;
  int64_t farthest_;
  mutable std::once_flag once_;
  mutable Summary summary_;
  mutable std::atomic<const Summary*> made_ = nullptr;
};

/// One head of a table.
class TableBias final : public Bias {
 public:
  TableBias(const BiasTable& table, int64_t head) : table_(&table), head_(head) {}

  double precise_at(int64_t distance) const override { return static_cast<double>(at(distance)); }
  float at(int64_t distance) const override { return table_->at(table_->row(distance), head_); }
  bool slides() const override { return false; }
  void tile(int64_t first, int64_t origin, int64_t count, float factor, float* values) const override;
  bool is_level(int64_t first, int64_t last) const override;
  float magnitude() const override { return table_->summary().magnitude[static_cast<size_t>(head_)]; }
  float rise() const override { return magnitude(); }
  bool falls(Side side, float share) const override;
  double beyond(Side side, int64_t distance) const override;
  void beyond(Side side, int64_t first, int step, int64_t count, float* values) const override;
  /// Distances beyond the table have one bias, so nothing is known of two far keys.
  double fall(Side, int64_t) const override { return 0; }
  double horizon(Side side, double log_weight, int64_t keys) const override;
  int64_t parameters() const override { return table_->rows(); }
  void add_gradient(int64_t first, int64_t nearest, std::span<const double> dscores, double* sums) const override;

 private:
  /// The largest values from each row of a side on.
  const float* maxima(Side side) const;

  const BiasTable* table_;
  int64_t head_;
};

}  // namespace alibi::kernels
