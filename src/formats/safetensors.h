// The safetensors format: named tensors in one file, or in several with an index.
// https://github.com/huggingface/safetensors: 8 bytes of header length (little endian), a JSON header that gives each
// tensor's type, shape and place, then the bytes of the tensors without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/tensor.h"
#include "core/files.h"

namespace alibi::formats {

/// What a file says of a tensor.
struct TensorInfo {
  std::string name;
  std::string dtype;  ///< as written in the file: "F32", "BF16", "F16", "I32" can be loaded
  Shape shape;
  size_t begin = 0;  ///< bytes from the beginning of the file
  size_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  ///< in the order of their bytes
  std::map<std::string, std::string> metadata;
};

/// Parses the header of a whole file in memory and checks it against the file: lengths, types, shapes, and that the
/// tensors fill the rest of the file without gaps or overlaps. Throws Error that begins with `source`.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, std::string_view source);

/// Reads tensors by name from memory-mapped files.
class Safetensors {
 public:
  /// `path` is a .safetensors file, an index (.json) of several, or a folder with model.safetensors or
  /// model.safetensors.index.json. Throws Error if anything in them does not fit.
  explicit Safetensors(const std::filesystem::path& path);

  /// All tensors, in the order of the files and of their bytes.
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  bool contains(std::string_view name) const { return find(name) != nullptr; }
  /// Throws Error if there is no such tensor.
  const TensorInfo& info(std::string_view name) const;
  /// Free text of the files' authors.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  /// The paths of the files.
  const std::vector<std::string>& sources() const { return sources_; }
  /// Of the one that holds it.
  const std::string& source_of(std::string_view name) const;

  /// Throws Error unless there is such a tensor of this shape, of a type that load_into() takes for `dtype`.
  void check_loadable(std::string_view name, const Shape& shape, DType dtype) const;
  /// A copy: F32, BF16 and I32 as they are, F16 as float32. Throws Error for other types.
  Tensor load(std::string_view name) const;
  /// Copies into a contiguous tensor of the same shape, rounding floating-point numbers to its type.
  void load_into(std::string_view name, Tensor& out) const;
  /// The same for numbers that are computed with. Throws Error that names the first that is infinite or none.
  void load_finite_into(std::string_view name, Tensor& out) const;

 private:
  void open_file(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& path);
  const TensorInfo* find(std::string_view name) const;

  std::vector<core::MappedFile> files_;
  std::vector<std::string> sources_;
  std::vector<TensorInfo> tensors_;
  std::vector<size_t> file_of_;  // of each tensor
  std::map<std::string, size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

/// A name for a tensor that the caller keeps alive.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Writes the tensors in the given order, streaming, beside the target and renamed. They must be contiguous and their
/// names unique. The header is padded so that the bytes begin at a multiple of 8. The default metadata is what PyTorch
/// users' loaders ask for.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace alibi::formats
