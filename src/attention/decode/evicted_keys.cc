#include "attention/decode/evicted_keys.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "attention/skip.h"

namespace alibi::kernels {
namespace {

/// Which power of two a stretch's size lies at.
int size_class(const EvictedKeys::Stretch& stretch) {
  return std::bit_width(static_cast<uint64_t>(stretch.end - stretch.begin));
}

}  // namespace

void EvictedKeys::add(const Stretch& stretch) {
  longest_ = std::max(longest_, stretch.norm);
  stretches_.push_back(stretch);
  // Of three that are equally large the older two become one, which may be the third of its size.
  for (size_t i = stretches_.size() - 1; i >= 2; i -= 2) {
    Stretch& oldest = stretches_[i - 2];
    const Stretch middle = stretches_[i - 1];
    const int size = size_class(stretches_[i]);
    if (size_class(middle) != size || size_class(oldest) != size) break;
    oldest.end = middle.end;
    oldest.norm = std::max(oldest.norm, middle.norm);
    stretches_.erase(stretches_.begin() + static_cast<int64_t>(i) - 1);
  }
}

double EvictedKeys::log_weight(double reach, float slope, int64_t position) const {
  constexpr double unknown = std::numeric_limits<double>::infinity();
  const auto m = static_cast<double>(slope);
  double max = -unknown, sum = 0;
  for (const Stretch& stretch : stretches_) {
    const auto distance = static_cast<double>(position - (stretch.end - 1));
    const double exponent = reach * static_cast<double>(stretch.norm) - m * distance +
                            std::log(weight_of_keys(m, stretch.end - stretch.begin));
    if (!(exponent < unknown)) return unknown;
    if (exponent == -unknown) continue;  // a closed head
    const double top = std::max(max, exponent);
    sum = sum * std::exp(max - top) + std::exp(exponent - top);
    max = top;
  }
  return sum > 0 ? max + std::log(sum) : -unknown;
}

}  // namespace alibi::kernels
