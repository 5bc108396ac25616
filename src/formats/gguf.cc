#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "core/check.h"
#include "formats/weight_types.h"

namespace alibi::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little endian and copied as they are");

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kLongestName = 4096;
constexpr int64_t kDefaultAlignment = 32;
constexpr uint32_t kMostGgufAxes = 4;

enum ValueType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// Size in bytes of a number or boolean; 0 for other types.
size_t size_of_value(uint32_t type) {
  constexpr size_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return type < std::size(sizes) ? sizes[type] : 0;
}

/// Reads the file sequentially, and never past its end.
class Reader {
 public:
  Reader(std::span<const std::byte> file, std::string_view source) : file_(file), source_(source) {}

  size_t at() const { return at_; }
  uint64_t left() const { return file_.size() - at_; }
  std::string_view source() const { return source_; }

  const std::byte* take(uint64_t count, std::string_view what) {
    check(count <= left(),
          "[gguf] {}: {} at byte {} needs {} bytes, but {} are left: the file is damaged or not a GGUF file", source_,
          what, at_, count, left());
    const std::byte* begin = file_.data() + at_;
    at_ += count;
    return begin;
  }
  template <class T>
  T number(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what), sizeof(T));
    return value;
  }
  std::string text(std::string_view what, uint64_t most = UINT64_MAX) {
    const auto size = number<uint64_t>(what);
    check(size <= most, "[gguf] {}: {} at byte {} has {} bytes, expected at most {}", source_, what, at_, size, most);
    return {reinterpret_cast<const char*>(take(size, what)), size};
  }

 private:
  std::span<const std::byte> file_;
  std::string_view source_;
  size_t at_ = 0;
};

Json read_value(Reader& in, uint32_t type, const std::string& key);

Json read_array(Reader& in, const std::string& key) {
  const auto type = in.number<uint32_t>(key);
  const auto count = in.number<uint64_t>(key);
  const size_t least = type == string ? sizeof(uint64_t) : size_of_value(type);
  check(least > 0, "[gguf] {}: {} is a list of values of type {}, expected numbers, booleans or strings", in.source(),
        key, type);
  check(count <= in.left() / least, "[gguf] {}: {} is a list of {} values, more than the file has bytes for",
        in.source(), key, count);
  Json::array_t values;
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) values.push_back(read_value(in, type, key));
  return values;
}

Json read_value(Reader& in, uint32_t type, const std::string& key) {
  switch (type) {
    case u8:
      return in.number<uint8_t>(key);
    case i8:
      return in.number<int8_t>(key);
    case u16:
      return in.number<uint16_t>(key);
    case i16:
      return in.number<int16_t>(key);
    case u32:
      return in.number<uint32_t>(key);
    case i32:
      return in.number<int32_t>(key);
    case f32:
      return in.number<float>(key);
    case boolean:
      return in.number<uint8_t>(key) != 0;
    case string:
      return in.text(key);
    case array:
      return read_array(in, key);
    case u64:
      return in.number<uint64_t>(key);
    case i64:
      return in.number<int64_t>(key);
    case f64:
      return in.number<double>(key);
    default:
      fail("[gguf] {}: {} is a value of type {}, which the format does not have", in.source(), key, type);
  }
}

/// Reads a tensor. Its `begin` counts from the beginning of the data.
TensorInfo read_tensor(Reader& in) {
  TensorInfo info;
  info.name = in.text("the name of a tensor", kLongestName);
  const auto axes = in.number<uint32_t>(info.name);
  check(axes >= 1 && axes <= kMostGgufAxes, "[gguf] {}: \"{}\" has {} axes, expected 1 to {}", in.source(), info.name,
        axes, kMostGgufAxes);
  int64_t elements = 1;
  for (uint32_t i = 0; i < axes; ++i) {
    const auto extent = in.number<int64_t>(info.name);
    check(extent > 0 && !__builtin_mul_overflow(elements, extent, &elements),
          "[gguf] {}: \"{}\" has an extent of {}, expected extents above 0 whose product fits 63 bits", in.source(),
          info.name, extent);
    info.shape.insert(info.shape.begin(), extent);
  }
  const auto id = in.number<uint32_t>(info.name);
  const WeightType* type = weight_type_of_gguf(id);
  check(type != nullptr,
        "[gguf] {}: \"{}\" is of type {} of ggml, expected {}; convert the file with llama.cpp's llama-quantize",
        in.source(), info.name, id, weight_type_names());
  info.dtype = type->name;
  check(info.shape.back() % type->block_elements == 0,
        "[gguf] {}: \"{}\" has rows of {} elements, expected a multiple of {} for {}", in.source(), info.name,
        info.shape.back(), type->block_elements, type->name);
  const auto begin = in.number<uint64_t>(info.name);
  int64_t bytes = 0;
  check(!__builtin_mul_overflow(elements / type->block_elements, int64_t{type->block_bytes}, &bytes) &&
            begin <= in.left() && static_cast<uint64_t>(bytes) <= in.left() - begin,
        "[gguf] {}: \"{}\" of {} {} at {} lies outside of the file", in.source(), info.name, info.dtype,
        to_string(info.shape), begin);
  info.begin = begin;
  info.end = begin + static_cast<size_t>(bytes);
  return info;
}

int64_t alignment_of(const Json& metadata, std::string_view source) {
  const auto found = metadata.find("general.alignment");
  if (found == metadata.end()) return kDefaultAlignment;
  const int64_t alignment = found->is_number_unsigned() && *found <= uint64_t{1} << 20 ? found->get<int64_t>() : 0;
  check(alignment > 0 && alignment % 8 == 0, "[gguf] {}: general.alignment is {}, expected a multiple of 8 to 2^20",
        source, found->dump(-1, ' ', false, Json::error_handler_t::replace));
  return alignment;
}

}  // namespace

GgufHeader parse_gguf_header(std::span<const std::byte> file, std::string_view source) {
  Reader in(file, source);
  const std::byte* magic = in.take(kMagic.size(), "the magic number");
  check(std::memcmp(magic, kMagic.data(), kMagic.size()) == 0, "[gguf] {}: does not begin with GGUF", source);
  const auto version = in.number<uint32_t>("the version");
  check(version == 2 || version == 3, "[gguf] {}: the version is {}, expected 2 or 3 in little-endian order", source,
        version);
  const auto tensors = in.number<uint64_t>("the number of tensors");
  const auto keys = in.number<uint64_t>("the number of keys");
  GgufHeader header;
  for (uint64_t i = 0; i < keys; ++i) {
    const std::string key = in.text("a key", kLongestName);
    check(!header.metadata.contains(key), "[gguf] {}: the key {} occurs twice", source, key);
    header.metadata[key] = read_value(in, in.number<uint32_t>(key), key);
  }
  for (uint64_t i = 0; i < tensors; ++i) header.tensors.push_back(read_tensor(in));
  const auto alignment = static_cast<size_t>(alignment_of(header.metadata, source));
  const size_t data = (in.at() + alignment - 1) / alignment * alignment;
  for (TensorInfo& info : header.tensors) {
    check(info.begin % alignment == 0, "[gguf] {}: \"{}\" begins at {}, expected a multiple of {}", source, info.name,
          info.begin, alignment);
    info.begin += data;
    info.end += data;
    check(info.end <= file.size(), "[gguf] {}: \"{}\" ends at byte {}, but the file has {}: the file is truncated",
          source, info.name, info.end, file.size());
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  for (size_t i = 1; i < header.tensors.size(); ++i) {
    check(header.tensors[i - 1].end <= header.tensors[i].begin, "[gguf] {}: \"{}\" and \"{}\" overlap", source,
          header.tensors[i - 1].name, header.tensors[i].name);
  }
  return header;
}

Gguf::Gguf(const std::filesystem::path& path) : WeightSource("gguf"), metadata_(Json::object(), path.string() + ": ") {
  core::MappedFile file(path);
  GgufHeader header = parse_gguf_header(file.bytes(), path.string());
  core::check_mapped(file.bytes().data());
  metadata_ = JsonObject(std::move(header.metadata), path.string() + ": ");
  add_file(std::move(file), path.string(), std::move(header.tensors));
}

}  // namespace alibi::formats
