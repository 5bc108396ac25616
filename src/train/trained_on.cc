#include "train/trained_on.h"

#include <algorithm>

#include "core/check.h"
#include "core/files.h"
#include "formats/json.h"
#include "train/identity.h"

namespace alibi::training {
namespace {

constexpr size_t kMostBytes = size_t{4} << 20;

uint64_t number_of(const formats::Json& value, const std::string& where) {
  check(value.is_number_unsigned(), "[trained on] {} holds {}, expected whole numbers of at least 0", where,
        value.dump());
  return value.get<uint64_t>();
}

}  // namespace

void write_trained_on(const std::filesystem::path& folder, std::span<const int32_t> tokens,
                      std::span<const int32_t> held_out) {
  const text::TextSketch sketch = text::sketch_of(tokens);
  const std::string held_out_fingerprint = fingerprint(held_out);
  core::check_mapped(tokens.data());
  core::check_mapped(held_out.data());
  formats::write_json(folder / kTrainedOnFile, {{"passage", text::kPassage},
                                                {"held_out_fingerprint", held_out_fingerprint},
                                                {"most", sketch.most},
                                                {"hashes", sketch.hashes}});
}

std::optional<TrainedOn> read_trained_on(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kTrainedOnFile;
  if (!core::path_exists(file)) return std::nullopt;
  const formats::JsonObject json = formats::read_json_object(file, kMostBytes);
  if (json.get<int64_t>("passage") != text::kPassage) return std::nullopt;  // another version's: it tells us nothing
  TrainedOn result;
  result.held_out_fingerprint = json.get<std::string>("held_out_fingerprint");
  check(json.has("most") && json.has("hashes") && json.raw().at("hashes").is_array(),
        "[trained on] {}most or hashes is missing", json.where());
  result.text.most = number_of(json.raw().at("most"), json.where() + "most");
  for (const formats::Json& hash : json.raw().at("hashes")) {
    result.text.hashes.push_back(number_of(hash, json.where() + "hashes"));
  }
  std::sort(result.text.hashes.begin(), result.text.hashes.end());
  return result;
}

}  // namespace alibi::training
