// GGUF, llama.cpp's format: typed metadata, then named tensors.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json.h"
#include "formats/weight_source.h"

namespace alibi::formats {

struct GgufHeader {
  /// A key with the bytes of its value as they are in the file, the type first.
  struct Key {
    std::string name;
    std::span<const std::byte> bytes;
  };
  std::shared_ptr<Json> metadata;   ///< key -> number, boolean, string or list
  std::vector<Key> keys;            ///< in the order of the file
  std::vector<TensorInfo> tensors;  ///< in the order of the file; shapes as in NumPy, slowest axis first
};

/// Parses the header of a whole file in memory and checks its lengths, types, shapes and offsets against the file: the
/// tensors must fill it, as llama.cpp requires. Memory is bounded by the size of the file. Throws Error that begins
/// with `source`.
GgufHeader parse_gguf_header(std::span<const std::byte> file, std::string_view source);

class Gguf : public WeightSource {
 public:
  /// Opens a file. For one part of a model that llama-gguf-split divided, opens all parts, which must lie beside it.
  explicit Gguf(const std::filesystem::path& path);

  /// By full keys, such as "mpt.attention.head_count". Of a model in parts, those of the first part.
  const JsonObject& metadata() const { return metadata_; }
  /// The same in the order of the file. The bytes are in the mapped file.
  const std::vector<GgufHeader::Key>& keys() const { return keys_; }

 private:
  GgufHeader add_part(const std::filesystem::path& path);

  JsonObject metadata_;
  std::vector<GgufHeader::Key> keys_;
};

}  // namespace alibi::formats
