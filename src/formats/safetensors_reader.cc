#include <atomic>
#include <bit>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/float16.h"
#include "core/parallel.h"
#include "formats/json.h"
#include "formats/safetensors.h"

namespace alibi::formats {
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
  core::parallel_ranges(out.elements(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = convert(element<From>(data, i));
  });
  core::check_mapped(data);
}

void copy_bytes(const std::byte* data, Tensor& out) {
  auto* to = static_cast<std::byte*>(out.raw());
  core::parallel_ranges(static_cast<int64_t>(out.bytes()), kGrain * 4,
                        [&](int64_t begin, int64_t end) { std::memcpy(to + begin, data + begin, end - begin); });
  core::check_mapped(data);
}

/// Of the first number that is infinite or none; -1: there is none such.
int64_t first_not_finite(const Tensor& tensor) {
  std::atomic<int64_t> first = tensor.elements();
  const auto search = [&]<class Bits>(const Bits* bits, Bits exponent) {
    core::parallel_ranges(tensor.elements(), kGrain, [&](int64_t begin, int64_t end) {
      bool found = false;
      for (int64_t i = begin; i < end; ++i) found |= (bits[i] & exponent) == exponent;
      if (!found) return;
      int64_t at = begin;
      while ((bits[at] & exponent) != exponent) ++at;
      for (int64_t known = first; at < known && !first.compare_exchange_weak(known, at);) {
      }
    });
  };
  if (tensor.dtype() == DType::float32) search(static_cast<const uint32_t*>(tensor.raw()), uint32_t{0x7f800000});
  if (tensor.dtype() == DType::bfloat16) search(static_cast<const uint16_t*>(tensor.raw()), uint16_t{0x7f80});
  return first < tensor.elements() ? first.load() : -1;
}

/// The indices of an element by its number in row-major order.
Shape place_of(int64_t element, const Shape& shape) {
  Shape place(shape.size());
  for (size_t axis = shape.size(); axis-- > 0; element /= shape[axis]) place[axis] = element % shape[axis];
  return place;
}

float widen(uint16_t bf16_bits) { return std::bit_cast<float>(static_cast<uint32_t>(bf16_bits) << 16); }

}  // namespace

Safetensors::Safetensors(const std::filesystem::path& path) {
  std::filesystem::path file = path;
  if (core::is_folder(path)) {
    file = path / "model.safetensors";
    if (!core::path_exists(file)) file = path / "model.safetensors.index.json";
    check(core::path_exists(file), "[safetensors] {}: holds neither model.safetensors nor its index", path.string());
  }
  file.extension() == ".json" ? open_index(file) : open_file(file);
}

void Safetensors::open_file(const std::filesystem::path& path) {
  core::MappedFile file(path);
  SafetensorsHeader header = parse_safetensors_header(file.bytes(), path.string());
  core::check_mapped(file.bytes().data());
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

const std::string& Safetensors::source_of(std::string_view name) const {
  info(name);
  return sources_[file_of_[by_name_.find(name)->second]];
}

Tensor Safetensors::load(std::string_view name) const {
  const TensorInfo& found = info(name);
  const DType dtype = found.dtype == "BF16" ? DType::bfloat16 : found.dtype == "I32" ? DType::int32 : DType::float32;
  check_loadable(name, found.shape, dtype);
  Tensor result = Tensor::empty(found.shape, dtype);
  load_into(name, result);
  return result;
}

void Safetensors::load_finite_into(std::string_view name, Tensor& out) const {
  if (out.device() != Device::cpu) {
    Tensor here = Tensor::empty(out.shape(), out.dtype());
    load_finite_into(name, here);
    return out.copy_from(here);
  }
  load_into(name, out);
  const int64_t bad = first_not_finite(out);
  if (bad < 0) return;
  const float value = out.reshape({out.elements()}).slice(0, bad, bad + 1).to_floats().front();
  fail("[safetensors] {}: \"{}\" {} is {}, expected finite numbers: the file is damaged, or its training failed",
       source_of(name), name, to_string(place_of(bad, out.shape())), value);
}

void Safetensors::check_loadable(std::string_view name, const Shape& shape, DType dtype) const {
  const TensorInfo& found = info(name);
  const std::string& source = source_of(name);
  check(found.dtype == "F32" || found.dtype == "BF16" || found.dtype == "F16" || found.dtype == "I32",
        "[safetensors] {}: \"{}\" is of type {}, expected F32, BF16, F16 or I32", source, name, found.dtype);
  check(shape == found.shape, "[safetensors] {}: \"{}\" has the shape {}, expected {}", source, name,
        to_string(found.shape), to_string(shape));
  check((found.dtype == "I32") == (dtype == DType::int32), "[safetensors] {}: \"{}\" is of type {}, expected {}",
        source, name, found.dtype, name_of(dtype));
}

void Safetensors::load_into(std::string_view name, Tensor& out) const {
  check_loadable(name, out.shape(), out.dtype());
  check(out.contiguous(), "[safetensors] \"{}\" cannot be loaded into a tensor that is not contiguous", name);
  check(out.device() == Device::cpu, "[safetensors] \"{}\" is read into the CPU's memory alone", name);
  const TensorInfo& found = info(name);
  const std::byte* data = files_[file_of_[by_name_.find(name)->second]].bytes().data() + found.begin;
  const bool f32 = found.dtype == "F32", bf16 = found.dtype == "BF16", i32 = found.dtype == "I32";
  const bool to_bf16 = out.dtype() == DType::bfloat16;
  if (i32 || (f32 && !to_bf16) || (bf16 && to_bf16)) return copy_bytes(data, out);
  if (bf16) return convert_all<uint16_t, float>(data, out, widen);
  if (f32) return convert_all<float, bfloat16>(data, out, [](float value) { return bfloat16(value); });
  if (!to_bf16) return convert_all<uint16_t, float>(data, out, core::float16_to_float);
  convert_all<uint16_t, bfloat16>(data, out, [](uint16_t bits) { return bfloat16(core::float16_to_float(bits)); });
}

}  // namespace alibi::formats
