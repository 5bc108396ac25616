// GGUF, llama.cpp's format: typed metadata, then named tensors.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "formats/json.h"
#include "formats/weight_source.h"

namespace alibi::formats {

struct GgufHeader {
  Json metadata = Json::object();   ///< key -> number, boolean, string or list
  std::vector<TensorInfo> tensors;  ///< in the order of their bytes; shapes as in NumPy, slowest axis first
};

/// Parses the header of a whole file in memory and checks its lengths, types, shapes and offsets against the file.
/// Memory is bounded by the size of the file. Throws Error that begins with `source`.
GgufHeader parse_gguf_header(std::span<const std::byte> file, std::string_view source);

class Gguf : public WeightSource {
 public:
  explicit Gguf(const std::filesystem::path& path);

  /// By full keys, such as "mpt.attention.head_count".
  const JsonObject& metadata() const { return metadata_; }

 private:
  JsonObject metadata_;
};

}  // namespace alibi::formats
