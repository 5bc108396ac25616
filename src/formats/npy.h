// NumPy's file of one array.
#pragma once

#include <filesystem>

#include "alibi/tensor.h"

namespace alibi::formats {

/// A contiguous float32 tensor, version 1.0 of the format. The file is there as a whole or not at all.
void write_npy(const std::filesystem::path& path, const Tensor& tensor);

}  // namespace alibi::formats
