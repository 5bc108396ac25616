// Writing GGUF files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/tensor.h"

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

  /// Adds a float32 tensor, which the caller must keep alive. `type` is F32, F16, BF16 or Q8_0 (weight_types.h); the
  /// numbers are rounded to it while they are written. Throws Error if rows do not fill whole blocks of the type.
  void tensor(const std::string& name, const Tensor& tensor, std::string_view type);

  /// Writes to a temporary file in the same folder, and renames it.
  void write(const std::filesystem::path& path) const;

 private:
  struct Entry {
    std::string name;
    Tensor tensor;
    std::string type;
    uint64_t begin;
  };

  void key(std::string_view name, uint32_t type);

  std::string keys_;
  uint64_t number_of_keys_ = 0;
  std::vector<Entry> tensors_;
  uint64_t data_bytes_ = 0;
};

/// The numbers in the file's format. The 32 numbers of a Q8_0 block share a scale, rounded as in ggml.
std::string encoded(std::span<const float> values, std::string_view type);

}  // namespace alibi::formats
