// Rows of numbers that are rounded to 8 bits, for products in integers.
#pragma once

#include <cstdint>
#include <vector>

namespace alibi::nn {

/// Number i of a row is scale * quant i, with a scale for each block of 32. Quants are -127 to 127.
struct RoundedRows {
  static constexpr int64_t block = 32;

  RoundedRows(int64_t rows, int64_t numbers)
      : k(numbers),
        quants(static_cast<size_t>(rows * k)),
        wide(static_cast<size_t>(rows * k)),
        scales(static_cast<size_t>(rows * k / block)),
        sums(scales.size()) {}

  const int8_t* quants_of(int64_t row) const { return quants.data() + row * k; }
  const int16_t* wide_of(int64_t row) const { return wide.data() + row * k; }
  int64_t blocks() const { return k / block; }

  int64_t k;
  std::vector<int8_t> quants;  ///< [rows, k]
  std::vector<int16_t> wide;   ///< the same
  std::vector<float> scales;   ///< [rows, blocks]; NaN for a block that has infinity or NaN
  std::vector<float> sums;     ///< [rows, blocks]: of the quants
};

}  // namespace alibi::nn
