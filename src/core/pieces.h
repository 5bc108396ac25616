// Divides several arrays together into tasks, so that many threads have enough work even if each array is short.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/parallel.h"

namespace alibi::core {

/// The elements [begin, end) of one of the arrays.
struct Piece {
  size_t array;
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

/// Divides arrays into pieces of at most `grain` elements, one array after the other.
class Pieces {
 public:
  explicit Pieces(int64_t grain) : grain_(grain) {}

  /// Adds an array.
  void add(int64_t elements) {
    elements_.push_back(elements);
    ends_.push_back(size() + ceil_div(elements, grain_));
  }
  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  Piece at(int64_t piece) const {
    const auto array = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), piece) - ends_.begin());
    const int64_t begin = (piece - (array > 0 ? ends_[array - 1] : 0)) * grain_;
    return {array, begin, std::min(begin + grain_, elements_[array])};
  }

 private:
  int64_t grain_;
  std::vector<int64_t> elements_;
  std::vector<int64_t> ends_;  // for each array, the index after its last piece
};

}  // namespace alibi::core
