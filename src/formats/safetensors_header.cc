#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <tuple>

#include "core/check.h"
#include "formats/json.h"
#include "formats/safetensors.h"

namespace alibi::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little endian and copied as they are");

constexpr size_t kLengthBytes = 8;
/// Enough for a hundred thousand tensors. The reference implementation allows six times as much, but JSON takes many
/// times its size in memory.
constexpr uint64_t kMaxHeaderBytes = kMaxJsonBytes;
constexpr size_t kMaxAxes = 16;

/// Bits per element, for all types of the format.
std::optional<size_t> element_bits(std::string_view dtype) {
  struct Size {
    std::string_view dtype;
    size_t bits;
  };
  static constexpr Size sizes[] = {{"F64", 64},    {"I64", 64},    {"U64", 64},    {"C64", 64},  {"F32", 32},
                                   {"I32", 32},    {"U32", 32},    {"F16", 16},    {"BF16", 16}, {"I16", 16},
                                   {"U16", 16},    {"I8", 8},      {"U8", 8},      {"BOOL", 8},  {"F8_E4M3", 8},
                                   {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F4", 4},    {"F6_E3M2", 6}};
  for (const Size& size : sizes) {
    if (size.dtype == dtype) return size.bits;
  }
  return std::nullopt;
}

/// Size of the elements in bytes. Nothing if they do not fill whole bytes, or if the number of elements is too large,
/// also when extents of zero are not counted.
std::optional<size_t> size_of_shape(const Shape& shape, size_t bits) {
  int64_t product = static_cast<int64_t>(bits);
  bool zero = false;
  for (const int64_t extent : shape) {
    zero |= extent == 0;
    if (__builtin_mul_overflow(product, std::max<int64_t>(extent, 1), &product)) return std::nullopt;
  }
  if (zero) return 0;
  return product % 8 == 0 ? std::optional(static_cast<size_t>(product / 8)) : std::nullopt;
}

TensorInfo parse_entry(const std::string& name, const JsonObject& entry, size_t data_begin, size_t data_bytes) {
  TensorInfo info;
  info.name = name;
  info.dtype = entry.get<std::string>("dtype");
  const std::optional<size_t> bits = element_bits(info.dtype);
  check(bits.has_value(), "[safetensors] {}dtype is \"{}\", which is not a type of the format", entry.where(),
        info.dtype);
  info.shape = entry.get<std::vector<int64_t>>("shape");
  check(info.shape.size() <= kMaxAxes, "[safetensors] {}shape has {} axes, expected at most {}", entry.where(),
        info.shape.size(), kMaxAxes);
  for (const int64_t extent : info.shape) {
    check(extent >= 0, "[safetensors] {}shape is {}, expected no negative extent", entry.where(),
          to_string(info.shape));
  }
  const auto offsets = entry.get<std::vector<int64_t>>("data_offsets");
  check(offsets.size() == 2, "[safetensors] {}data_offsets has {} numbers, expected 2", entry.where(), offsets.size());
  const int64_t begin = offsets[0], end = offsets[1];
  check(begin >= 0 && begin <= end && static_cast<uint64_t>(end) <= data_bytes,
        "[safetensors] {}data_offsets is [{}, {}], expected a range within the {} bytes of data", entry.where(), begin,
        end, data_bytes);
  const auto expected = size_of_shape(info.shape, *bits);
  check(expected.has_value() && *expected == static_cast<size_t>(end - begin),
        "[safetensors] {}data_offsets spans {} bytes, expected those of {} {}", entry.where(), end - begin, info.dtype,
        to_string(info.shape));
  info.begin = data_begin + static_cast<size_t>(begin);
  info.end = data_begin + static_cast<size_t>(end);
  return info;
}

/// Checks that the tensors, sorted by offset, fill the data exactly.
void check_coverage(const std::vector<TensorInfo>& tensors, size_t data_begin, size_t file_bytes,
                    std::string_view source) {
  size_t at = data_begin;
  for (const TensorInfo& info : tensors) {
    check(info.begin == at, "[safetensors] {}: \"{}\" begins at byte {}, expected {}: there is {}", source, info.name,
          info.begin, at, info.begin < at ? "an overlap" : "a gap");
    at = info.end;
  }
  check(at == file_bytes, "[safetensors] {}: has {} bytes after its last tensor, expected none", source,
        file_bytes - at);
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file, std::string_view source) {
  check(file.size() >= kLengthBytes, "[safetensors] {}: has {} bytes, expected at least {}", source, file.size(),
        kLengthBytes);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, file.data(), kLengthBytes);
  check(header_bytes <= kMaxHeaderBytes && header_bytes <= file.size() - kLengthBytes,
        "[safetensors] {}: gives a header of {} bytes, in a file of {}; expected at most {}: the file is damaged or "
        "not a safetensors file",
        source, header_bytes, file.size(), kMaxHeaderBytes);
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, header_bytes);
  const JsonObject header(parse_json(text, source), fmt::format("{}: ", source));
  const size_t data_begin = kLengthBytes + header_bytes;

  SafetensorsHeader result;
  for (const auto& [key, value] : header.raw().items()) {
    if (key == "__metadata__") {
      const JsonObject metadata(value, fmt::format("{}: __metadata__.", source));
      for (const std::string& name : metadata.keys()) result.metadata[name] = metadata.get<std::string>(name);
    } else {
      const JsonObject entry(value, fmt::format("{}: \"{}\".", source, key));
      result.tensors.push_back(parse_entry(key, entry, data_begin, file.size() - data_begin));
    }
  }
  std::sort(result.tensors.begin(), result.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_coverage(result.tensors, data_begin, file.size(), source);
  return result;
}

}  // namespace alibi::formats
