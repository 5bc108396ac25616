#include "formats/npy.h"

#include <bit>
#include <cstdint>
#include <string>

#include "core/check.h"
#include "core/files.h"
#include "formats/tensor_rows.h"

namespace alibi::formats {

void write_npy(const std::filesystem::path& path, const Tensor& tensor) {
  static_assert(std::endian::native == std::endian::little);
  check(tensor.dtype() == DType::float32 && has_contiguous_rows(tensor) && tensor.axes() > 0,
        "[npy] the array is {} {}, expected float32 with contiguous rows", name_of(tensor.dtype()),
        to_string(tensor.shape()));
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", fmt::join(tensor.shape(), ", "));
  constexpr size_t before = 10, alignment = 64;
  header.append((alignment - (before + header.size() + 1) % alignment) % alignment, ' ');
  header += '\n';
  std::string file = "\x93NUMPY";
  file += '\x01';
  file += '\0';
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  core::write_file(path, [&](const auto& append) {
    append(file);
    append_rows(tensor, append);
  });
}

}  // namespace alibi::formats
