// Writing tensors whose rows have gaps between them.
#pragma once

#include <string_view>

#include "alibi/tensor.h"

namespace alibi::formats {

/// Whether append_rows() can write the tensor: it is contiguous, or a matrix with contiguous rows.
inline bool has_contiguous_rows(const Tensor& tensor) {
  return tensor.contiguous() || (tensor.axes() == 2 && tensor.stride(1) == 1);
}

/// Passes the elements to `append`, without the gaps.
template <class Append>
void append_rows(const Tensor& tensor, const Append& append) {
  const auto append_whole = [&](const Tensor& part) {
    append(std::string_view(static_cast<const char*>(part.raw()), part.bytes()));
  };
  if (tensor.contiguous()) return append_whole(tensor);
  for (int64_t row = 0; row < tensor.size(0); ++row) append_whole(tensor.slice(0, row, row + 1));
}

}  // namespace alibi::formats
