// Writes GGUF files byte by byte, also wrong ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace alibi::test {

struct GgufWriter {
  uint32_t version = 3;
  uint64_t keys = 0, tensors = 0;
  std::string key_bytes, tensor_bytes, data;
  uint64_t alignment = 32;  ///< of the data and of each tensor in it

  template <class T>
  static std::string raw(const T& value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  }
  static std::string text(std::string_view value) { return raw(uint64_t{value.size()}) + std::string(value); }

  /// `type` is GGUF's number of the type of the value, whose bytes are given.
  GgufWriter& key(std::string_view name, uint32_t type, const std::string& bytes) {
    key_bytes += text(name) + raw(type) + bytes;
    ++keys;
    return *this;
  }
  GgufWriter& integer(std::string_view name, uint32_t value) { return key(name, 4, raw(value)); }
  GgufWriter& number(std::string_view name, float value) { return key(name, 6, raw(value)); }
  GgufWriter& string(std::string_view name, std::string_view value) { return key(name, 8, text(value)); }

  /// Extents as NumPy has them, slowest axis first.
  GgufWriter& tensor(std::string_view name, std::vector<uint64_t> extents, uint32_t type, const std::string& bytes) {
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    tensor_bytes += text(name) + raw(static_cast<uint32_t>(extents.size()));
    for (size_t i = extents.size(); i-- > 0;) tensor_bytes += raw(extents[i]);
    tensor_bytes += raw(type) + raw(uint64_t{data.size()});
    data += bytes;
    ++tensors;
    return *this;
  }

  std::string file() const {
    std::string all = "GGUF" + raw(version) + raw(tensors) + raw(keys) + key_bytes + tensor_bytes;
    all.resize((all.size() + alignment - 1) / alignment * alignment);
    return all + data;
  }
};

}  // namespace alibi::test
