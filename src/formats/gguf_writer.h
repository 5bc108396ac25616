// Writing GGUF files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/tensor.h"
#include "formats/weight_types.h"

namespace alibi::formats {

/// Collects metadata and tensors, then writes a file of version 3.
class GgufWriter {
 public:
  void integer(std::string_view key, uint32_t value);
  void number(std::string_view key, float value);
  void boolean(std::string_view key, bool value);
  void text(std::string_view key, std::string_view value);
  void texts(std::string_view key, const std::vector<std::string>& values);
  void integers(std::string_view key, const std::vector<int32_t>& values);
  void numbers(std::string_view key, const std::vector<float>& values);
  void bytes(std::string_view key, std::string_view values);

  /// A key with the bytes of its type and value, as in GgufHeader::Key.
  void raw(std::string_view key, std::span<const std::byte> type_and_value);

  /// Adds a tensor. `type` is F32, F16, BF16 or Q8_0 (weight_types.h). `values` returns it as contiguous float32 when
  /// it is written; the numbers are rounded to the type. Throws Error if rows do not fill whole blocks of the type.
  void tensor(const std::string& name, const Shape& shape, std::string_view type, std::function<Tensor()> values);
  /// Adds a tensor whose bytes in this type are copied. They must live until write() has returned.
  void tensor(const std::string& name, const Shape& shape, std::string_view type, std::span<const std::byte> bytes);

  /// Writes to a temporary file in the same folder, and renames it. Throws Error that names the tensor if a number does
  /// not fit into its type.
  void write(const std::filesystem::path& path) const;

 private:
  struct Entry {
    std::string name = {};
    Shape shape = {};
    const WeightType* type = nullptr;
    uint64_t begin = 0;
    std::function<Tensor()> values = {};  ///< empty: bytes are copied
    std::span<const std::byte> bytes = {};
  };

  void key(std::string_view name, uint32_t type);
  void add(const std::string& name, const Shape& shape, std::string_view type, Entry entry);

  std::string keys_;
  uint64_t number_of_keys_ = 0;
  std::vector<Entry> tensors_;
  uint64_t data_bytes_ = 0;
};

/// The numbers in the file's format. The 32 numbers of a Q8_0 block share a scale, rounded as in ggml.
std::string encoded(std::span<const float> values, const WeightType& type);

}  // namespace alibi::formats
