#include <bit>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/parallel.h"
#include "formats/float16.h"
#include "formats/json.h"
#include "formats/safetensors.h"

namespace alibi {
namespace {

constexpr int64_t kGrain = 1 << 16;  // elements converted by one task

/// The bytes of element i, which need not be aligned.
template <class T>
T element(const std::byte* data, int64_t i) {
  T value;
  std::memcpy(&value, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class From, class To, class Convert>
void convert_all(const std::byte* data, Tensor& out, const Convert& convert) {
  To* to = out.data<To>();
  parallel_ranges(out.elements(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = convert(element<From>(data, i));
  });
  check_mapped(data);
}

void copy_bytes(const std::byte* data, Tensor& out) {
  auto* to = static_cast<std::byte*>(out.raw());
  parallel_ranges(static_cast<int64_t>(out.bytes()), kGrain * 4,
                  [&](int64_t begin, int64_t end) { std::memcpy(to + begin, data + begin, end - begin); });
  check_mapped(data);
}

float widen(uint16_t bf16_bits) { return std::bit_cast<float>(static_cast<uint32_t>(bf16_bits) << 16); }

}  // namespace

Safetensors::Safetensors(const std::filesystem::path& path) {
  std::filesystem::path file = path;
  if (is_folder(path)) {
    file = path / "model.safetensors";
    if (!path_exists(file)) file = path / "model.safetensors.index.json";
    check(path_exists(file), "[safetensors] {}: holds neither model.safetensors nor its index", path.string());
  }
  file.extension() == ".json" ? open_index(file) : open_file(file);
}

void Safetensors::open_file(const std::filesystem::path& path) {
  MappedFile file(path);
  SafetensorsHeader header = parse_safetensors_header(file.bytes(), path.string());
  check_mapped(file.bytes().data());
  for (TensorInfo& info : header.tensors) {
    const auto [entry, added] = by_name_.emplace(info.name, tensors_.size());
    check(added, "[safetensors] {}: \"{}\" is also in {}", path.string(), info.name,
          added ? "" : sources_[file_of_[entry->second]]);
    file_of_.push_back(files_.size());
    tensors_.push_back(std::move(info));
  }
  metadata_.merge(header.metadata);
  files_.push_back(std::move(file));
  sources_.push_back(path.string());
}

/// {"metadata": ..., "weight_map": {tensor name: file name}}
void Safetensors::open_index(const std::filesystem::path& path) {
  const JsonObject index = read_json_object(path);
  const JsonObject weight_map = index.object("weight_map");
  std::map<std::string, size_t> files;  // file name -> place in files_
  for (const std::string& name : weight_map.keys()) {
    const auto file = weight_map.get<std::string>(name);
    check(!file.empty() && std::filesystem::path(file).filename() == file && file != "." && file != "..",
          "[safetensors] {}: places \"{}\" in \"{}\", expected the name of a file beside the index", path.string(),
          name, file);
    if (files.emplace(file, files_.size()).second) open_file(path.parent_path() / file);
  }
  for (const std::string& name : weight_map.keys()) {
    const auto entry = by_name_.find(name);
    const auto file = weight_map.get<std::string>(name);
    check(entry != by_name_.end() && file_of_[entry->second] == files.at(file),
          "[safetensors] {}: places \"{}\" in \"{}\", which does not hold it", path.string(), name, file);
  }
}

const TensorInfo* Safetensors::find(std::string_view name) const {
  const auto entry = by_name_.find(name);
  return entry == by_name_.end() ? nullptr : &tensors_[entry->second];
}

const TensorInfo& Safetensors::info(std::string_view name) const {
  const TensorInfo* info = find(name);
  check(info != nullptr, "[safetensors] {}: has no tensor \"{}\"", fmt::join(sources_, ", "), name);
  return *info;
}

Tensor Safetensors::load(std::string_view name) const {
  const TensorInfo& found = info(name);
  const DType dtype = found.dtype == "BF16" ? DType::bfloat16 : found.dtype == "I32" ? DType::int32 : DType::float32;
  Tensor result = Tensor::empty(found.shape, dtype);
  load_into(name, result);
  return result;
}

void Safetensors::load_into(std::string_view name, Tensor& out) const {
  const TensorInfo& found = info(name);
  const size_t file = file_of_[by_name_.find(name)->second];
  const std::string& source = sources_[file];
  check(out.shape() == found.shape, "[safetensors] {}: \"{}\" has the shape {}, expected {}", source, name,
        to_string(found.shape), to_string(out.shape()));
  check(out.contiguous(), "[safetensors] \"{}\" cannot be loaded into a tensor that is not contiguous", name);
  const std::byte* data = files_[file].bytes().data() + found.begin;
  const bool f32 = found.dtype == "F32", bf16 = found.dtype == "BF16", f16 = found.dtype == "F16";
  const bool i32 = found.dtype == "I32";
  check(f32 || bf16 || f16 || i32, "[safetensors] {}: \"{}\" is of type {}, expected F32, BF16, F16 or I32", source,
        name, found.dtype);
  check(i32 == (out.dtype() == DType::int32), "[safetensors] {}: \"{}\" is of type {}, expected {}", source, name,
        found.dtype, name_of(out.dtype()));
  const bool to_bf16 = out.dtype() == DType::bfloat16;
  if (i32 || (f32 && !to_bf16) || (bf16 && to_bf16)) return copy_bytes(data, out);
  if (bf16) return convert_all<uint16_t, float>(data, out, widen);
  if (f32) return convert_all<float, bfloat16>(data, out, [](float value) { return bfloat16(value); });
  if (!to_bf16) return convert_all<uint16_t, float>(data, out, float16_to_float);
  convert_all<uint16_t, bfloat16>(data, out, [](uint16_t bits) { return bfloat16(float16_to_float(bits)); });
}

}  // namespace alibi
