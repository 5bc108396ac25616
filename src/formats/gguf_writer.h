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

  /// A float32 tensor, which the caller keeps alive; `type` is F32, F16, BF16 or Q8_0 (weight_types.h), to which the
  /// numbers are rounded while they are written. Throws Error if rows do not fill blocks of the type.
  void tensor(const std::string& name, const Tensor& tensor, std::string_view type);

  /// Streams the file beside its target, and renames it.
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

/// The numbers as a file has them: 32 numbers of a Q8_0 block share a scale, as ggml rounds them.
std::string encoded(std::span<const float> values, std::string_view type);

}  // namespace alibi::formats
