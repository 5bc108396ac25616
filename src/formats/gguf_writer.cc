#include "formats/gguf_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "core/check.h"
#include "core/files.h"
#include "core/parallel.h"

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

}  // namespace

std::string encoded(std::span<const float> values, const WeightType& type) {
  check(type.encode != nullptr, "[gguf] weights of type {} cannot be written", type.name);
  const int64_t elements = type.block_elements, bytes = type.block_bytes, blocks = std::ssize(values) / elements;
  std::string result(static_cast<size_t>(blocks * bytes), '\0');
  auto* const to = reinterpret_cast<std::byte*>(result.data());
  core::parallel_ranges(blocks, std::max<int64_t>(1, (1 << 12) / elements), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) type.encode(values.data() + i * elements, to + i * bytes);
  });
  return result;
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

void GgufWriter::raw(std::string_view name, std::span<const std::byte> type_and_value) {
  append_text(keys_, name);
  keys_.append(reinterpret_cast<const char*>(type_and_value.data()), type_and_value.size());
  ++number_of_keys_;
}

void GgufWriter::add(const std::string& name, const Shape& shape, std::string_view type, Entry entry) {
  const WeightType* known = weight_type(type);
  check(known != nullptr && !shape.empty(),
        "[gguf] \"{}\" has the shape {}, expected at least one axis and a known type, not {}", name, to_string(shape),
        type);
  check(shape.back() % known->block_elements == 0,
        "[gguf] \"{}\" has rows of {} elements, expected a multiple of {} for {}", name, shape.back(),
        known->block_elements, type);
  entry.name = name;
  entry.shape = shape;
  entry.type = known;
  entry.begin = data_bytes_;
  int64_t bytes = known->block_bytes;
  for (const int64_t extent : shape) bytes *= extent;
  data_bytes_ += aligned(static_cast<uint64_t>(bytes / known->block_elements));
  tensors_.push_back(std::move(entry));
}

void GgufWriter::tensor(const std::string& name, const Shape& shape, std::string_view type,
                        std::function<Tensor()> values) {
  add(name, shape, type, {.values = std::move(values)});
}

void GgufWriter::tensor(const std::string& name, const Shape& shape, std::string_view type,
                        std::span<const std::byte> bytes) {
  add(name, shape, type, {.bytes = bytes});
}

void GgufWriter::write(const std::filesystem::path& path) const {
  std::string header = "GGUF";
  append_number(header, uint32_t{3});
  append_number(header, uint64_t{tensors_.size()});
  append_number(header, number_of_keys_);
  header += keys_;
  for (const Entry& entry : tensors_) {
    append_text(header, entry.name);
    append_number(header, static_cast<uint32_t>(entry.shape.size()));
    for (size_t axis = entry.shape.size(); axis-- > 0;) append_number(header, static_cast<uint64_t>(entry.shape[axis]));
    append_number(header, entry.type->gguf_id);
    append_number(header, entry.begin);
  }
  header.resize(aligned(header.size()));
  core::write_file(path, [&](const auto& append) {
    append(header);
    for (const Entry& entry : tensors_) {
      uint64_t written = 0;
      const auto add = [&](std::string_view bytes) {
        append(bytes);
        written += bytes.size();
      };
      if (entry.values == nullptr) {
        add({reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size()});
      } else {
        const Tensor tensor = entry.values();
        check(tensor.shape() == entry.shape && tensor.dtype() == DType::float32 && tensor.contiguous(),
              "[gguf] \"{}\" is {} {}, expected contiguous float32 {}", entry.name, name_of(tensor.dtype()),
              to_string(tensor.shape()), to_string(entry.shape));
        const std::span<const float> values(tensor.data<float>(), static_cast<size_t>(tensor.elements()));
        for (size_t at = 0; at < values.size(); at += kValuesAtATime) {
          const auto some = values.subspan(at, std::min<size_t>(kValuesAtATime, values.size() - at));
          check_fits(some, *entry.type, entry.name, static_cast<int64_t>(at));
          add(encoded(some, *entry.type));
        }
      }
      append(std::string(aligned(written) - written, '\0'));
    }
  });
}

}  // namespace alibi::formats
