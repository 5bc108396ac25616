// Bytes of safetensors files for the tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace alibi::test {

/// A file with this header and this many bytes of data.
inline std::string safetensors_file(std::string_view header, size_t data_bytes) {
  const uint64_t size = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &size, 8);
  return file.append(header).append(data_bytes, '\x01');
}

/// What the reference implementation (safetensors 0.8.0 for Python) writes for a float16, an int32, an empty and a
/// scalar tensor.
inline std::string reference_file() {
  using namespace std::string_literals;
  return "\x08\x01\0\0\0\0\0\0"s +
         R"({"__metadata__":{"by":"test"},"empty":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},)"
         R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
         R"("ids":{"dtype":"I32","shape":[3,1],"data_offsets":[4,16]},)"
         R"("half":{"dtype":"F16","shape":[2],"data_offsets":[16,20]}}  )"
         "\0\0 @\x07\0\0\0\xf8\xff\xff\xff\t\0\0\0\0>\0\xb4"s;
}

/// Of exactly the text's size on the heap, so that the address sanitizer sees a read past its end.
class ExactBytes {
 public:
  explicit ExactBytes(std::string_view text) : bytes_(new std::byte[text.size()]), size_(text.size()) {
    std::memcpy(bytes_, text.data(), size_);
  }
  ~ExactBytes() { delete[] bytes_; }
  ExactBytes(const ExactBytes&) = delete;
  ExactBytes& operator=(const ExactBytes&) = delete;
  std::span<const std::byte> span() const { return {bytes_, size_}; }

 private:
  std::byte* bytes_;
  size_t size_;
};

}  // namespace alibi::test
