#include "formats/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "core/check.h"
#include "formats/weight_types.h"

namespace alibi::formats {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF files are little endian and copied as they are");

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kLongestName = 4096;
constexpr size_t kDefaultAlignment = 32, kMaxAlignment = size_t{1} << 20;
constexpr uint32_t kMaxGgufAxes = 4;

// Keys of a file in parts, as llama.cpp's llama-gguf-split writes them.
constexpr const char *kPartKey = "split.no", *kPartsKey = "split.count", *kTensorsKey = "split.tensors.count";
constexpr int64_t kMaxParts = 65535;

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

void read_value(Reader& in, uint32_t type, const std::string& key, Json& value);

void read_array(Reader& in, const std::string& key, Json& list) {
  const auto type = in.number<uint32_t>(key);
  const auto count = in.number<uint64_t>(key);
  const size_t least = type == string ? sizeof(uint64_t) : size_of_value(type);
  check(least > 0, "[gguf] {}: {} is a list of values of type {}, expected numbers, booleans or strings", in.source(),
        key, type);
  check(count <= in.left() / least, "[gguf] {}: {} is a list of {} values, more than the file has bytes for",
        in.source(), key, count);
  list = Json::array();
  auto& values = list.get_ref<Json::array_t&>();
  values.reserve(count);
  for (uint64_t i = 0; i < count; ++i) read_value(in, type, key, values.emplace_back());
}

/// Fills a value in its place, because freeing a list needs memory (SharedJson).
template <class T>
void read_as(Reader& in, const std::string& key, Json& value) {
  if constexpr (std::is_same_v<T, bool>) {
    value = in.number<uint8_t>(key) != 0;
  } else if constexpr (std::is_same_v<T, std::string>) {
    value = in.text(key);
  } else {
    value = in.number<T>(key);
  }
}

void read_value(Reader& in, uint32_t type, const std::string& key, Json& value) {
  // in the order of ValueType
  constexpr void (*readers[])(Reader&, const std::string&, Json&) = {
      read_as<uint8_t>,  read_as<int8_t>,  read_as<uint16_t>, read_as<int16_t>,     read_as<uint32_t>,
      read_as<int32_t>,  read_as<float>,   read_as<bool>,     read_as<std::string>, read_array,
      read_as<uint64_t>, read_as<int64_t>, read_as<double>};
  check(type < std::size(readers), "[gguf] {}: {} is a value of type {}, which the format does not have", in.source(),
        key, type);
  readers[type](in, key, value);
}

/// Reads a tensor. Its `begin` counts from the beginning of the data.
TensorInfo read_tensor(Reader& in) {
  TensorInfo info;
  info.name = in.text("the name of a tensor", kLongestName);
  const auto axes = in.number<uint32_t>(info.name);
  check(axes >= 1 && axes <= kMaxGgufAxes, "[gguf] {}: \"{}\" has {} axes, expected 1 to {}", in.source(), info.name,
        axes, kMaxGgufAxes);
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

/// As llama.cpp has it: a power of two, of type u32.
size_t alignment_of(const GgufHeader& header, std::string_view source) {
  constexpr std::string_view key = "general.alignment";
  const Json& metadata = *header.metadata;
  const auto found = metadata.find(key);
  if (found == metadata.end()) return kDefaultAlignment;
  const auto stored =
      std::find_if(header.keys.begin(), header.keys.end(), [&](const auto& k) { return k.name == key; });
  const bool is_u32 = static_cast<uint32_t>(stored->bytes[0]) == u32;
  const uint64_t alignment = is_u32 ? found->get<uint64_t>() : 0;
  check(std::has_single_bit(alignment) && alignment <= kMaxAlignment,
        "[gguf] {}: {} is {}, expected a power of two up to {}, of type u32", source, key,
        found->dump(-1, ' ', false, Json::error_handler_t::replace), kMaxAlignment);
  return alignment;
}

/// Where the bytes of each tensor are. They follow one another in the order of the header, each at the next multiple of
/// the alignment, and fill the file: other places mean that a type or a shape in the header is wrong.
void place_tensors(size_t header_end, std::span<const std::byte> file, std::string_view source, GgufHeader& header) {
  if (header.tensors.empty()) return;
  const size_t alignment = alignment_of(header, source);
  const auto aligned = [&](size_t at) { return (at + alignment - 1) / alignment * alignment; };
  const size_t data = aligned(header_end);
  size_t expected = 0;
  for (TensorInfo& info : header.tensors) {
    check(info.begin == expected,
          "[gguf] {}: \"{}\" begins at byte {} of the data, expected {}, where the tensor before it ends: a tensor has "
          "another type or shape than the header says",
          source, info.name, info.begin, expected);
    expected = aligned(info.end);
    info.begin += data;
    info.end += data;
    check(info.end <= file.size(), "[gguf] {}: \"{}\" ends at byte {}, but the file has {}: the file is truncated",
          source, info.name, info.end, file.size());
  }
  check(
      file.size() <= data + expected,
      "[gguf] {}: the last tensor, \"{}\", ends at byte {}, but the file has {}: it has another type or shape than the "
      "header says, or the file is damaged",
      source, header.tensors.back().name, header.tensors.back().end, file.size());
}

/// "m-00001-of-00003.gguf" -> "m"; empty if the name of a part of a split file is not of that form.
std::string name_before_parts(const std::string& name) {
  constexpr std::string_view form = "-00000-of-00000.gguf";
  if (name.size() <= form.size()) return {};
  const std::string_view end = std::string_view(name).substr(name.size() - form.size());
  for (size_t i = 0; i < form.size(); ++i) {
    const bool is_digit = end[i] >= '0' && end[i] <= '9';
    if (form[i] == '0' ? !is_digit : end[i] != form[i]) return {};
  }
  return name.substr(0, name.size() - form.size());
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
  header.metadata = std::const_pointer_cast<Json>(parse_json("{}", source));  // filled in place (SharedJson)
  for (uint64_t i = 0; i < keys; ++i) {
    std::string key = in.text("a key", kLongestName);
    check(!header.metadata->contains(key), "[gguf] {}: the key {} occurs twice", source, key);
    const size_t begin = in.at();
    read_value(in, in.number<uint32_t>(key), key, (*header.metadata)[key]);
    header.keys.push_back({std::move(key), file.subspan(begin, in.at() - begin)});
  }
  for (uint64_t i = 0; i < tensors; ++i) header.tensors.push_back(read_tensor(in));
  place_tensors(in.at(), file, source, header);
  return header;
}

Gguf::Gguf(const std::filesystem::path& path) : WeightSource("gguf"), metadata_(Json::object(), path.string() + ": ") {
  GgufHeader header = add_part(path);
  const std::string where = path.string() + ": ";
  const JsonObject given(header.metadata, where);
  const int64_t parts = given.get_int_or(kPartsKey, 1, 0, kMaxParts);
  if (parts <= 1) {
    metadata_ = given;
    keys_ = std::move(header.keys);
    return;
  }
  const std::string name = name_before_parts(path.filename().string());
  const auto path_of = [&](int64_t part) {
    return path.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf", name, part + 1, parts);
  };
  const int64_t own = given.get_int(kPartKey, 0, parts - 1);
  check(!name.empty() && path_of(own) == path, "[gguf] {} is part {} of {}, expected a name like {}", path.string(),
        own + 1, parts, path_of(own).filename().string());
  for (int64_t part = 0; part < parts; ++part) {
    const std::filesystem::path file = path_of(part);
    check(core::path_exists(file), "[gguf] {}: the file is missing; it is part {} of {} of the model", file.string(),
          part + 1, parts);
    GgufHeader of_part = part == own ? header : add_part(file);
    const JsonObject metadata(of_part.metadata, file.string() + ": ");
    const bool is_part = metadata.get_int_or(kPartKey, -1, 0, kMaxParts) == part &&
                         metadata.get_int_or(kPartsKey, -1, 0, kMaxParts) == parts;
    check(is_part, "[gguf] {}: {} and {} say something else than the name, which is that of part {} of {}",
          file.string(), kPartKey, kPartsKey, part + 1, parts);
    if (part > 0) continue;
    metadata_ = metadata;  // the other parts say only which parts they are
    keys_ = std::move(of_part.keys);
  }
  const int64_t expected = metadata_.get_int_or(kTensorsKey, std::ssize(tensors()), 0, INT32_MAX);
  check(std::ssize(tensors()) == expected, "[gguf] {}: the {} parts have {} tensors, expected {}", path.string(), parts,
        tensors().size(), expected);
}

GgufHeader Gguf::add_part(const std::filesystem::path& path) {
  core::MappedFile file(path);
  GgufHeader header = parse_gguf_header(file.bytes(), path.string());
  add_file(std::move(file), path.string(), header.tensors);
  return header;
}

}  // namespace alibi::formats
