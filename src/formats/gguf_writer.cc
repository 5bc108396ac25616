#include "formats/gguf_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "core/check.h"
#include "core/files.h"
#include "core/float16.h"
#include "formats/weight_types.h"

namespace alibi::formats {
namespace {

constexpr uint64_t kAlignment = 32;
constexpr int64_t kValuesAtATime = int64_t{1} << 20;  // number of values that are rounded at a time

/// GGUF's numbers of the types of values.
enum : uint32_t { kU8 = 0, kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7, kString = 8, kArray = 9 };

uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

template <class T>
void append_number(std::string& to, const T& value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void append_text(std::string& to, std::string_view text) {
  append_number(to, uint64_t{text.size()});
  to.append(text);
}

/// Rounds like the NumPy code of the gguf package: halves away from zero.
void append_q8_0(std::string& to, std::span<const float> block) {
  float largest = 0;
  for (const float value : block) largest = std::max(largest, std::abs(value));
  const float scale = largest / 127, inverse = scale == 0 ? 0 : 1 / scale;
  append_number(to, core::float_to_float16(scale));
  for (const float value : block) to += static_cast<char>(static_cast<int8_t>(std::round(value * inverse)));
}

}  // namespace

std::string encoded(std::span<const float> values, std::string_view type) {
  std::string bytes;
  if (type == "F32") {
    bytes.assign(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  } else if (type == "F16") {
    for (const float value : values) append_number(bytes, core::float_to_float16(value));
  } else if (type == "BF16") {
    for (const float value : values) append_number(bytes, bfloat16(value).bits);
  } else {
    check(type == "Q8_0", "[gguf] weights of type {} cannot be written, expected F32, F16, BF16 or Q8_0", type);
    for (size_t i = 0; i < values.size(); i += 32) append_q8_0(bytes, values.subspan(i, 32));
  }
  return bytes;
}

void GgufWriter::key(std::string_view name, uint32_t type) {
  append_text(keys_, name);
  append_number(keys_, type);
  ++number_of_keys_;
}
void GgufWriter::integer(std::string_view name, uint32_t value) {
  key(name, kU32);
  append_number(keys_, value);
}
void GgufWriter::number(std::string_view name, float value) {
  key(name, kF32);
  append_number(keys_, value);
}
void GgufWriter::boolean(std::string_view name, bool value) {
  key(name, kBool);
  append_number(keys_, static_cast<uint8_t>(value));
}
void GgufWriter::text(std::string_view name, std::string_view value) {
  key(name, kString);
  append_text(keys_, value);
}
void GgufWriter::texts(std::string_view name, const std::vector<std::string>& values) {
  key(name, kArray);
  append_number(keys_, uint32_t{kString});
  append_number(keys_, uint64_t{values.size()});
  for (const std::string& value : values) append_text(keys_, value);
}
void GgufWriter::integers(std::string_view name, const std::vector<int32_t>& values) {
  key(name, kArray);
  append_number(keys_, uint32_t{kI32});
  append_number(keys_, uint64_t{values.size()});
  for (const int32_t value : values) append_number(keys_, value);
}
void GgufWriter::numbers(std::string_view name, const std::vector<float>& values) {
  key(name, kArray);
  append_number(keys_, uint32_t{kF32});
  append_number(keys_, uint64_t{values.size()});
  for (const float value : values) append_number(keys_, value);
}
void GgufWriter::bytes(std::string_view name, std::string_view values) {
  key(name, kArray);
  append_number(keys_, uint32_t{kU8});
  append_text(keys_, values);
}

void GgufWriter::tensor(const std::string& name, const Tensor& tensor, std::string_view type) {
  const WeightType* known = weight_type(type);
  check(known != nullptr && tensor.dtype() == DType::float32 && tensor.contiguous() && tensor.axes() > 0,
        "[gguf] \"{}\" is {} {}, expected a contiguous float32 tensor to write as a known type, not {}", name,
        name_of(tensor.dtype()), to_string(tensor.shape()), type);
  check(tensor.size(-1) % known->block_elements == 0,
        "[gguf] \"{}\" has rows of {} elements, expected a multiple of {} for {}", name, tensor.size(-1),
        known->block_elements, type);
  tensors_.push_back({name, tensor, std::string(type), data_bytes_});
  data_bytes_ += aligned(static_cast<uint64_t>(tensor.elements() / known->block_elements * known->block_bytes));
}

void GgufWriter::write(const std::filesystem::path& path) const {
  std::string header = "GGUF";
  append_number(header, uint32_t{3});
  append_number(header, uint64_t{tensors_.size()});
  append_number(header, number_of_keys_);
  header += keys_;
  for (const Entry& entry : tensors_) {
    append_text(header, entry.name);
    const Shape& shape = entry.tensor.shape();
    append_number(header, static_cast<uint32_t>(shape.size()));
    for (size_t axis = shape.size(); axis-- > 0;) append_number(header, static_cast<uint64_t>(shape[axis]));
    append_number(header, weight_type(entry.type)->gguf_id);
    append_number(header, entry.begin);
  }
  header.resize(aligned(header.size()));
  core::write_file(path, [&](const auto& append) {
    append(header);
    for (const Entry& entry : tensors_) {
      const std::span<const float> values(entry.tensor.data<float>(), static_cast<size_t>(entry.tensor.elements()));
      uint64_t written = 0;
      for (size_t at = 0; at < values.size(); at += kValuesAtATime) {
        const std::string bytes =
            encoded(values.subspan(at, std::min<size_t>(kValuesAtATime, values.size() - at)), entry.type);
        append(bytes);
        written += bytes.size();
      }
      append(std::string(aligned(written) - written, '\0'));
    }
  });
}

}  // namespace alibi::formats
