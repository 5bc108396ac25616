#include "formats/npy.h"

#include <bit>
#include <cstdint>
#include <string>

#include "core/check.h"
#include "core/files.h"

namespace alibi::formats {

void write_npy(const std::filesystem::path& path, const Tensor& tensor) {
  static_assert(std::endian::native == std::endian::little);
  check(tensor.dtype() == DType::float32 && tensor.contiguous() && tensor.axes() > 0,
        "[npy] the array is {} {}, expected contiguous float32", name_of(tensor.dtype()), to_string(tensor.shape()));
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
    append({static_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.bytes())});
  });
}

}  // namespace alibi::formats
