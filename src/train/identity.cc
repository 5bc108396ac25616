#include "train/identity.h"

#include <algorithm>

#include "core/check.h"
#include "core/checksum.h"
#include "core/files.h"
#include "core/parallel.h"
#include "core/random.h"
#include "formats/json.h"
#include "model/config_fields.h"
#include "train/described.h"

namespace alibi::training {
namespace {

constexpr int64_t kChunk = 1 << 16, kMaxChunks = 1 << 10;

uint64_t hash_of(std::span<const int32_t> tokens) {
  uint64_t hash = tokens.size();
  for (const int32_t token : tokens) hash = core::mix(hash, static_cast<uint32_t>(token));
  return hash;
}

template <class Options>
formats::OrderedJson options_json(const Options& options) {
  formats::OrderedJson json;
  for (const formats::Option<Options>& option : formats::options_of<Options>) {
    if (option.changes_result) json[option.name] = formats::json_of(option.get(options));
  }
  return json;
}

formats::OrderedJson model_json(const LanguageModel& model) {
  const LanguageModelConfig& config = model.config();
  formats::OrderedJson json;
  for (const model::ConfigField& field : model::config_fields()) {
    if (field.changes_result && field.belongs_to(config.transformer.position)) {
      json[field.name] = formats::json_of(field.get(config));
    }
  }
  json["ffn_dim"] = config.transformer.ffn_dim();
  json["cutoffs"] = config.adaptive ? config.adaptive->cutoffs : std::vector<int64_t>();
  json["adaptive_dropout"] = config.adaptive ? config.adaptive->dropout : 0;
  json["parameters"] = model.parameter_count();
  return json;
}

constexpr size_t kMaxBytes = size_t{4} << 20;

uint64_t number_of(const formats::Json& value, const std::string& where) {
  check(value.is_number_unsigned(), "[trained on] {} contains {}, expected whole numbers of at least 0", where,
        value.dump());
  return value.get<uint64_t>();
}

}  // namespace

std::string fingerprint(std::span<const int32_t> tokens) {
  const int64_t chunks = core::ceil_div(static_cast<int64_t>(tokens.size()), kChunk);
  const int64_t read = std::min(chunks, kMaxChunks);
  std::vector<uint64_t> hashes(static_cast<size_t>(read));
  core::parallel_for(read, [&](int64_t i) {
    const int64_t chunk = read == chunks ? i : i * (chunks - 1) / (read - 1);
    const auto begin = static_cast<size_t>(chunk * kChunk);
    hashes[static_cast<size_t>(i)] = hash_of(tokens.subspan(begin, std::min<size_t>(kChunk, tokens.size() - begin)));
  });
  uint64_t hash = tokens.size();
  for (const uint64_t part : hashes) hash = core::mix(hash, part);
  return fmt::format("{:016x}", hash);
}

formats::OrderedJson identity_of(const LanguageModel& model, std::span<const int32_t> tokens,
                                 std::span<const int32_t> valid, const TrainOptions& options) {
  formats::OrderedJson identity = options_json(options);
  identity.update(model_json(model));
  identity["text_tokens"] = tokens.size();
  identity["text_fingerprint"] = fingerprint(tokens);
  if (options.eval_steps > 0) identity["held_out_text"] = fingerprint(valid);
  return identity;
}

ranks::NamedValues named_values(const formats::OrderedJson& identity) {
  ranks::NamedValues values;
  for (const auto& [name, value] : identity.items()) values.emplace_back(name, value.dump());
  return values;
}

std::string weights_digest(const LanguageModel& model) {
  const std::vector<const Parameter*> parameters = model.parameters();
  std::vector<core::Digest> digests(parameters.size());
  core::parallel_for(std::ssize(parameters), [&](int64_t i) {
    const Tensor& value = parameters[static_cast<size_t>(i)]->value;
    digests[static_cast<size_t>(i)] = core::digest_of({static_cast<const char*>(value.raw()), value.bytes()});
  });
  uint64_t hash = 0;
  for (const core::Digest& digest : digests) hash = core::mix(core::mix(hash, digest.high), digest.low);
  return fmt::format("{:016x}", hash);
}

std::vector<std::string> differences(const formats::OrderedJson& now, const formats::Json& known) {
  // The identity is converted to text and back, so that numbers are compared as a checkpoint stores them.
  formats::Json ours = formats::Json::parse(now.dump()), before = known;
  const bool same_position = ours.value("position", formats::Json()) == before.value("position", formats::Json());
  for (const model::ConfigField& field : model::config_fields()) {
    if (same_position || !field.more.method) continue;
    ours.erase(field.name);  // a field of one position method
    before.erase(field.name);
  }
  std::vector<std::string> found;
  for (const auto& [key, value] : ours.items()) {
    const auto was = before.find(key);
    if (was == before.end()) {
      found.push_back(fmt::format("{} is {}, was not recorded", key, value.dump()));
    } else if (*was != value) {
      found.push_back(fmt::format("{} is {}, was {}", key, value.dump(), was->dump()));
    }
  }
  for (const auto& [key, value] : before.items()) {
    if (!ours.contains(key)) found.push_back(fmt::format("{} is not set, was {}", key, value.dump()));
  }
  return found;
}

void write_trained_on(const std::filesystem::path& folder, std::span<const int32_t> tokens,
                      std::span<const int32_t> held_out) {
  const text::TextSketch sketch = text::sketch_of(tokens);
  formats::write_json(folder / kTrainedOnFile, {{"passage", text::kPassage},
                                                {"held_out_fingerprint", fingerprint(held_out)},
                                                {"most", sketch.most},
                                                {"hashes", sketch.hashes}});
}

std::optional<TrainedOn> read_trained_on(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / kTrainedOnFile;
  if (!core::path_exists(file)) return std::nullopt;
  const formats::JsonObject json = formats::read_json_object(file, kMaxBytes);
  if (json.get<int64_t>("passage") != text::kPassage)
    return std::nullopt;  // written by a version with a different passage length
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
