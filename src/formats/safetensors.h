// The safetensors format: named tensors in one file, or in several files with an index.
// https://github.com/huggingface/safetensors: 8 bytes of header length (little endian), a JSON header with each
// tensor's type, shape and offsets, then the bytes of the tensors without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/tensor.h"
#include "formats/weight_source.h"

namespace alibi::formats {

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  ///< in the order of their bytes
  std::map<std::string, std::string> metadata;
};

/// Parses the header of a whole file in memory and checks it against the file: lengths, types, shapes, and that the
/// tensors fill the rest of the file without gaps or overlaps. Throws Error that begins with `source`.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, std::string_view source);

/// The tensors of one file, or of several files with an index.
class Safetensors : public WeightSource {
 public:
  /// `path` is a .safetensors file, an index (.json) of several files, or a folder with model.safetensors or
  /// model.safetensors.index.json. Throws Error if the files are invalid or inconsistent.
  explicit Safetensors(const std::filesystem::path& path);

  /// Free text from the files' authors.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

 private:
  void open_file(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& path);

  std::map<std::string, std::string> metadata_;
};

/// A name for a tensor that the caller keeps alive.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// A tensor that is created when it is written, or the bytes of a tensor.
struct StreamedTensor {
  std::string name;
  std::string dtype;  ///< as the file names it
  Shape shape;
  std::function<Tensor()> make = {};      ///< of this shape and type, contiguous
  std::span<const std::byte> bytes = {};  ///< without `make`
};

/// Writes the tensors in the given order to a temporary file in the same folder, and renames it. The tensors must be
/// contiguous and their names unique. The header is padded so that the data begins at a multiple of 8. PyTorch loaders
/// expect the default metadata.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});
void write_safetensors(const std::filesystem::path& path, const std::vector<StreamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace alibi::formats
