// NumPy's file format for one array.
#pragma once

#include <filesystem>

#include "alibi/tensor.h"

namespace alibi::formats {

/// Writes a contiguous float32 tensor in version 1.0 of the format. The file is written atomically.
void write_npy(const std::filesystem::path& path, const Tensor& tensor);

}  // namespace alibi::formats
