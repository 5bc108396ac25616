// NumPy's file format for one array.
#pragma once

#include <filesystem>

#include "alibi/tensor.h"

namespace alibi::formats {

/// A contiguous float32 tensor, version 1.0 of the format. The file is written atomically.
void write_npy(const std::filesystem::path& path, const Tensor& tensor);

}  // namespace alibi::formats
