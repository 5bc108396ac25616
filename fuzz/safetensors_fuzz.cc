// A safetensors file, its header and its data apart, or an index beside two good files.
#include "alibi/tensor.h"
#include "formats/safetensors.h"
#include "harness.h"
#include "json_mutator.h"
#include "target.h"
#include "temporary_folder.h"

namespace alibi::fuzz {
namespace {

enum Kind : unsigned {
  whole,  ///< the file
  parts,  ///< the header, a zero byte, the data: the length is put in front, so that a header may change its size
  index,
  kinds
};

Tensor numbers(const Shape& shape, DType dtype) {
  Tensor tensor(shape);
  tensor.fill(0.5f);
  return dtype == DType::int32 ? Tensor(shape, dtype) : tensor.to(dtype);
}

Files good_files() {
  const test::TemporaryFolder folder;
  formats::write_safetensors(folder / "a.safetensors",
                             {{"a", numbers({2, 3}, DType::float32)}, {"b", numbers({4}, DType::bfloat16)}});
  formats::write_safetensors(folder / "b.safetensors",
                             {{"c", numbers({3, 1, 2}, DType::int32)}, {"d", numbers({0}, DType::float32)}}, {});
  return files_of(folder.path());
}

std::string with_length(std::string_view content) {
  const size_t end = content.find('\0');
  const std::string_view header = content.substr(0, end);
  std::string file;
  for (unsigned shift = 0; shift < 64; shift += 8) file += static_cast<char>(header.size() >> shift);
  file += header;
  if (end != std::string_view::npos) file += content.substr(end + 1);
  return file;
}

void load_all(const std::filesystem::path& path) {
  const formats::Safetensors file(path);
  for (const formats::TensorInfo& info : file.tensors()) {
    const Tensor tensor = file.load(info.name);
    if (tensor.dtype() == DType::int32) continue;
    Tensor rounded = Tensor::empty(info.shape, DType::bfloat16);
    file.load_into(info.name, rounded);
  }
}

bool run(std::string_view input) {
  static const test::TemporaryFolder folder;
  static const bool ready = (write_files(folder.path(), good_files()), true);
  demand(ready, "the files beside are there");
  const Choice choice = choose(input, kinds);
  const std::string path = folder / (choice.kind == index ? "index.json" : "file.safetensors");
  write_file(path, choice.kind == parts ? with_length(choice.content) : std::string(choice.content));
  return takes(input, folder.path(), [&] { load_all(path); });
}

std::vector<Seed> seeds() {
  Files files = good_files();
  std::vector<Seed> all;
  for (const auto& [name, content] : files) {
    const size_t header = static_cast<unsigned char>(content[0]);  // these are short
    all.push_back({name + ".whole", chosen(whole, content)});
    all.push_back({name + ".parts", chosen(parts, content.substr(8, header) + '\0' + content.substr(8 + header))});
  }
  all.push_back({"index", chosen(index, R"({"weight_map": {"a": "a.safetensors", "c": "b.safetensors"}})")});
  return all;
}

}  // namespace

Target safetensors() { return {"safetensors", run, seeds, mutate_json}; }

}  // namespace alibi::fuzz
