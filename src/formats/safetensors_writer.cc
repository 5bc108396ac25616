#include <cstdint>
#include <numeric>
#include <set>

#include "core/check.h"
#include "core/files.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "formats/tensor_rows.h"
#include "formats/weight_types.h"

namespace alibi::formats {
namespace {

std::string file_dtype(DType dtype) {
  if (dtype == DType::int32) return "I32";
  const WeightType& type = weight_type(dtype);
  check(type.is_plain(), "[safetensors] the format has no type for {}", name_of(dtype));
  return std::string(type.name);
}

/// For the types of file_dtype().
size_t bytes_of(const StreamedTensor& tensor) {
  const size_t size = tensor.dtype == "F16" || tensor.dtype == "BF16" ? 2 : 4;
  return std::accumulate(tensor.shape.begin(), tensor.shape.end(), size,
                         [](size_t product, int64_t extent) { return product * static_cast<size_t>(extent); });
}

std::string dump(const OrderedJson& json, const std::filesystem::path& path) {
  try {
    return json.dump();
  } catch (const OrderedJson::exception&) {
    fail("[safetensors] {}: a name is not UTF-8", path.string());
  }
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<StreamedTensor> streamed;
  streamed.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    check(tensor.defined() && has_contiguous_rows(tensor),
          "[safetensors] {}: \"{}\" is {}, expected a tensor with contiguous rows", path.string(), name,
          tensor.defined() ? "not contiguous" : "undefined");
    streamed.push_back({name, file_dtype(tensor.dtype()), tensor.shape(), [kept = tensor] { return kept; }});
  }
  write_safetensors(path, streamed, metadata);
}

void write_safetensors(const std::filesystem::path& path, const std::vector<StreamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  OrderedJson::object_t entries;  // a vector of pairs: appended to, for looking names up in it is slow
  if (!metadata.empty()) entries.emplace_back("__metadata__", metadata);
  std::set<std::string_view> names;
  size_t at = 0;
  for (const StreamedTensor& tensor : tensors) {
    check(tensor.name != "__metadata__" && names.insert(tensor.name).second,
          "[safetensors] {}: the name \"{}\" is taken; expected every tensor to have its own", path.string(),
          tensor.name);
    const size_t end = at + (tensor.make ? bytes_of(tensor) : tensor.bytes.size());
    OrderedJson entry = {{"dtype", tensor.dtype}, {"shape", tensor.shape}};
    entry["data_offsets"] = {at, end};
    entries.emplace_back(tensor.name, std::move(entry));
    at = end;
  }
  std::string header = dump(OrderedJson(std::move(entries)), path);
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t header_bytes = header.size();
  core::write_file(path, [&](const auto& append) {
    append({reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes});
    append(header);
    for (const StreamedTensor& tensor : tensors) {
      if (!tensor.make) {
        append({reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()});
        continue;
      }
      const Tensor here = tensor.make();
      check(here.bytes() == bytes_of(tensor) && has_contiguous_rows(here),
            "[safetensors] {}: \"{}\" is {} {}, expected {} {}", path.string(), tensor.name, name_of(here.dtype()),
            to_string(here.shape()), tensor.dtype, to_string(tensor.shape));
      append_rows(here, append);
    }
  });
}

}  // namespace alibi::formats
