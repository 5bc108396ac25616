#include <cstring>
#include <set>

#include "core/check.h"
#include "core/files.h"
#include "formats/json.h"
#include "formats/safetensors.h"

namespace alibi::formats {
namespace {

const char* file_dtype(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "F32";
    case DType::bfloat16:
      return "BF16";
    case DType::int32:
      return "I32";
    case DType::float16:
      return "F16";
    case DType::q8_0:
      break;
  }
  fail("[safetensors] the format has no type for {}", name_of(dtype));
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
  OrderedJson::object_t entries;  // a vector of pairs: appended to, for looking names up in it is slow
  if (!metadata.empty()) entries.emplace_back("__metadata__", metadata);
  std::set<std::string_view> names;
  size_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    check(name != "__metadata__" && names.insert(name).second,
          "[safetensors] {}: the name \"{}\" is taken; expected every tensor to have its own", path.string(), name);
    check(tensor.defined() && tensor.contiguous(), "[safetensors] {}: \"{}\" is {}, expected a contiguous tensor",
          path.string(), name, tensor.defined() ? "not contiguous" : "undefined");
    const size_t end = at + tensor.bytes();
    OrderedJson entry = {{"dtype", file_dtype(tensor.dtype())}, {"shape", tensor.shape()}};
    entry["data_offsets"] = {at, end};
    entries.emplace_back(name, std::move(entry));
    at = end;
  }
  std::string header = dump(OrderedJson(std::move(entries)), path);
  header.append((8 - header.size() % 8) % 8, ' ');
  const uint64_t header_bytes = header.size();
  core::write_file(path, [&](const auto& append) {
    append({reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes});
    append(header);
    for (const auto& [name, tensor] : tensors) {
      const Tensor here = tensor.to(Device::cpu);
      append({static_cast<const char*>(here.raw()), here.bytes()});
    }
  });
}

}  // namespace alibi::formats
