#include <set>
#include <utility>

#include "core/check.h"
#include "formats/json.h"
#include "formats/safetensors.h"

namespace alibi::formats {
namespace {

constexpr const char* kFile = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
/// Weights as pickled Python objects, which may run arbitrary code when they are read.
constexpr const char* kPickles[] = {"pytorch_model.bin", "pytorch_model.bin.index.json"};

/// The file or the index in a folder.
std::filesystem::path weights_of(const std::filesystem::path& folder) {
  for (const char* name : {kFile, kIndex}) {
    if (core::path_exists(folder / name)) return folder / name;
  }
  for (const char* pickle : kPickles) {
    check(!core::path_exists(folder / pickle),
          "[safetensors] {}: the weights are in {}, a format that can run any program when it is read; convert it "
          "with transformers: AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER)",
          folder.string(), pickle);
  }
  fail("[safetensors] {}: contains neither {} nor {}", folder.string(), kFile, kIndex);
}

}  // namespace

Safetensors::Safetensors(const std::filesystem::path& path) : WeightSource("safetensors") {
  const std::filesystem::path file = core::is_folder(path) ? weights_of(path) : path;
  file.extension() == ".json" ? open_index(file) : open_file(file);
}

void Safetensors::open_file(const std::filesystem::path& path) {
  core::MappedFile file(path);
  SafetensorsHeader header = parse_safetensors_header(file.bytes(), path.string());
  metadata_.merge(header.metadata);
  add_file(std::move(file), path.string(), std::move(header.tensors));
}

/// {"metadata": ..., "weight_map": {tensor name: file name}}
void Safetensors::open_index(const std::filesystem::path& path) {
  const JsonObject index = read_json_object(path);
  const JsonObject weight_map = index.object("weight_map");
  check(weight_map.size() > 0, "[safetensors] {}: weight_map is empty, expected the tensors and their files",
        path.string());
  std::set<std::string> files;
  for (const std::string& name : weight_map.keys()) {
    const auto file = weight_map.get<std::string>(name);
    check(!file.empty() && std::filesystem::path(file).filename() == file && file != "." && file != "..",
          "[safetensors] {}: places \"{}\" in \"{}\", expected the name of a file beside the index", path.string(),
          name, file);
    if (files.insert(file).second) open_file(path.parent_path() / file);
  }
  for (const std::string& name : weight_map.keys()) {
    const auto file = weight_map.get<std::string>(name);
    check(contains(name) && source_of(name) == (path.parent_path() / file).string(),
          "[safetensors] {}: places \"{}\" in \"{}\", which does not contain it", path.string(), name, file);
  }
}

}  // namespace alibi::formats
