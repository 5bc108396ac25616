#include "attention/bias/table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

namespace alibi::kernels {
namespace {

Side side_of(int64_t distance) { return distance < 0 ? Side::after : Side::before; }

}  // namespace

BiasTable::BiasTable(const Tensor& values, const TableSide& before, const TableSide& after, std::vector<int64_t> starts,
                     int64_t farthest)
    : values_(values.to(Device::cpu)),
      data_(values_.data<float>()),
      row_stride_(values_.stride(0)),
      head_stride_(values_.stride(1)),
      sides_{before, after},
      starts_(std::move(starts)),
      farthest_(farthest) {}

int64_t BiasTable::index(Side of, int64_t distance) const {
  const int64_t last = side(of).count - 1;
  if (starts_.empty() || distance <= 0) return std::clamp<int64_t>(distance, 0, last);
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), distance);
  return std::min(last, static_cast<int64_t>(after - starts_.begin()) - 1);
}

int64_t BiasTable::row(int64_t distance) const {
  const Side of = side_of(distance);
  return side(of).first + side(of).step * index(of, std::abs(distance));
}

template <class Visit>
void BiasTable::each_row(int64_t first, int64_t count, const Visit& visit) const {
  for (int64_t d = first; d < first + count;) {
    const Side of = side_of(d);
    const int64_t i = index(of, std::abs(d));
    int64_t next = first + count;  // the first distance of another row
    if (of == Side::after) next = std::min<int64_t>({next, 0, 1 - start(i)});
    if (of == Side::before && i + 1 < side(of).count) next = std::min(next, start(i + 1));
    next = std::max(next, d + 1);
    visit(side(of).first + side(of).step * i, next - d);
    d = next;
  }
}

const BiasTable::Summary& BiasTable::summary() const {
  std::call_once(once_, [this] {
    const auto all = static_cast<size_t>(heads());
    Summary& s = summary_;
    s.columns.resize(static_cast<size_t>(values_.elements()));
    s.magnitude.assign(all, 0.0f);
    s.top.assign(all, -std::numeric_limits<float>::infinity());
    for (int64_t row = 0; row < rows(); ++row) {
      for (int64_t head = 0; head < heads(); ++head) {
        const float value = at(row, head);
        const auto h = static_cast<size_t>(head);
        s.columns[h * static_cast<size_t>(rows()) + static_cast<size_t>(row)] = value;
        s.magnitude[h] = std::max(s.magnitude[h], std::isfinite(value) ? std::abs(value) : HUGE_VALF);
        s.top[h] = std::max(s.top[h], std::isnan(value) ? HUGE_VALF : value);
      }
    }
    for (const Side of : {Side::before, Side::after}) {
      const TableSide& rows_of = side(of);
      std::vector<float>& beyond = s.beyond[static_cast<size_t>(of)];
      beyond.resize(all * static_cast<size_t>(rows_of.count));
      for (int64_t head = 0; head < heads(); ++head) {
        float largest = -std::numeric_limits<float>::infinity();
        for (int64_t i = rows_of.count; i-- > 0;) {
          const float value = at(rows_of.first + rows_of.step * i, head);
          largest = std::max(largest, std::isnan(value) ? HUGE_VALF : value);
          beyond[static_cast<size_t>(head * rows_of.count + i)] = largest;
        }
      }
    }
    made_ = &s;
  });
  return summary_;
}

void BiasTable::read(int64_t head, int64_t first, int64_t count, float unit, float* values) const {
  const Summary* const summary = made_;
  const float* const column =
      summary != nullptr ? &summary->columns[static_cast<size_t>(head * rows())] : &data_[head * head_stride_];
  const int64_t step = summary != nullptr ? 1 : row_stride_;
  if (starts_.empty()) {  // the rows are in the order of the distances
    const int64_t zero = side(Side::before).first, last = rows() - 1;
    const int64_t begin = std::clamp<int64_t>(-zero - first, 0, count);
    const int64_t end = std::clamp<int64_t>(last - zero - first, begin, count);
    std::fill_n(values, begin, unit * column[0]);
    const int64_t row = zero + first;  // of distance `first`
    if (step == 1) {                   // a loop of its own, for vectors
      for (int64_t i = begin; i < end; ++i) values[i] = unit * column[row + i];
    } else {
      for (int64_t i = begin; i < end; ++i) values[i] = unit * column[(row + i) * step];
    }
    std::fill_n(values + end, count - end, unit * column[last * step]);
    return;
  }
  each_row(first, count, [&](int64_t row, int64_t n) {
    std::fill_n(values, n, unit * column[row * step]);
    values += n;
  });
}

void TableBias::tile(int64_t first, int64_t, int64_t count, float factor, float* values) const {
  table_->read(head_, first, count, std::numbers::log2e_v<float> / factor, values);
}

bool TableBias::is_level(int64_t first, int64_t last) const {
  return first >= table_->farthest() || last <= -table_->farthest();
}

const float* TableBias::maxima(Side side) const {
  return &table_->summary().beyond[static_cast<size_t>(side)][static_cast<size_t>(head_ * table_->side(side).count)];
}

bool TableBias::falls(Side side, float share) const {
  const float top = table_->summary().top[static_cast<size_t>(head_)];
  return top - maxima(side)[table_->side(side).count - 1] >= -std::log(share);  // false for NaN
}

double TableBias::beyond(Side side, int64_t distance) const {
  return static_cast<double>(maxima(side)[table_->index(side, distance)]);
}

void TableBias::beyond(Side side, int64_t first, int step, int64_t count, float* values) const {
  const float* const of_rows = maxima(side);
  for (int64_t i = 0; i < count; ++i) {
    values[i] = std::numbers::log2e_v<float> * of_rows[table_->index(side, first + i * step)];
  }
}

double TableBias::horizon(Side side, double log_weight, int64_t keys) const {
  const double most = log_weight - std::log(static_cast<double>(std::max<int64_t>(1, keys)));
  const float* const of_rows = maxima(side);
  for (int64_t i = 0; i < table_->side(side).count; ++i) {
    if (static_cast<double>(of_rows[i]) <= most) return static_cast<double>(table_->start(i));
  }
  return std::numeric_limits<double>::infinity();
}

void TableBias::add_gradient(int64_t first, int64_t, std::span<const double> dscores, double* sums) const {
  table_->each_row(first, std::ssize(dscores), [&](int64_t row, int64_t n) {
    for (const double dscore : dscores.first(static_cast<size_t>(n))) sums[row] += dscore;
    dscores = dscores.subspan(static_cast<size_t>(n));
  });
}

}  // namespace alibi::kernels
