#include "train/identity.h"

#include <algorithm>

#include "core/check.h"
#include "core/parallel.h"
#include "core/random.h"
#include "train/described.h"

namespace alibi {
namespace {

constexpr int64_t kChunk = 1 << 16, kMostChunks = 1 << 10;

uint64_t hash_of(std::span<const int32_t> tokens) {
  uint64_t hash = tokens.size();
  for (const int32_t token : tokens) hash = mix(hash, static_cast<uint32_t>(token));
  return hash;
}

template <class Options>
OrderedJson options_json(const Options& options) {
  OrderedJson json;
  for (const Option<Options>& option : options_of<Options>) {
    if (option.changes_result) json[option.name] = json_of(option.get(options));
  }
  return json;
}

OrderedJson model_json(const LanguageModel& model) {
  const LanguageModelConfig& config = model.config();
  const TransformerConfig& t = config.transformer;
  return {{"position", name_of(t.position)},
          {"layers", t.layers},
          {"d_model", t.d_model},
          {"heads", t.heads},
          {"kv_heads", t.kv_heads},
          {"ffn_dim", t.ffn_dim()},
          {"dropout", t.dropout},
          {"attention_dropout", t.attention_dropout},
          {"activation_dropout", t.activation_dropout},
          {"embedding_dropout", t.embedding_dropout},
          {"alibi_bias_max", t.alibi_bias_max},
          {"causal", t.causal},
          {"bidirectional", name_of(t.bidirectional)},
          {"slopes", t.alibi_slopes},
          {"slope_training", name_of(t.slope_training)},
          {"window", t.window},
          {"t5_buckets", t.t5_buckets},
          {"t5_max_distance", t.t5_max_distance},
          {"t5_init", t.t5_init},
          {"t5_rate_factor", t.t5_rate_factor},
          {"rotary_theta", t.rotary_theta},
          {"max_length", t.max_length},
          {"activation", name_of(t.activation)},
          {"norm", name_of(t.norm)},
          {"norm_eps", t.norm_eps},
          {"bias", t.bias},
          {"final_norm", t.final_norm},
          {"tolerance", t.tolerance},
          {"vocab_size", config.vocab_size},
          {"embedding_scale", config.embedding_scale},
          {"cutoffs", config.adaptive ? config.adaptive->cutoffs : std::vector<int64_t>()},
          {"adaptive_dropout", config.adaptive ? config.adaptive->dropout : 0},
          {"parameters", model.parameter_count()}};
}

}  // namespace

std::string fingerprint(std::span<const int32_t> tokens) {
  const int64_t chunks = ceil_div(static_cast<int64_t>(tokens.size()), kChunk);
  const int64_t read = std::min(chunks, kMostChunks);
  std::vector<uint64_t> hashes(static_cast<size_t>(read));
  parallel_for(read, [&](int64_t i) {
    const int64_t chunk = read == chunks ? i : i * (chunks - 1) / (read - 1);
    const auto begin = static_cast<size_t>(chunk * kChunk);
    hashes[static_cast<size_t>(i)] = hash_of(tokens.subspan(begin, std::min<size_t>(kChunk, tokens.size() - begin)));
  });
  uint64_t hash = tokens.size();
  for (const uint64_t part : hashes) hash = mix(hash, part);
  return fmt::format("{:016x}", hash);
}

OrderedJson identity_of(const LanguageModel& model, std::span<const int32_t> tokens, std::span<const int32_t> valid,
                        const TrainOptions& options) {
  OrderedJson identity = options_json(options);
  identity.update(model_json(model));
  identity["text_tokens"] = tokens.size();
  identity["text_fingerprint"] = fingerprint(tokens);
  if (options.eval_steps > 0) identity["held_out_fingerprint"] = fingerprint(valid);
  return identity;
}

std::vector<std::string> differences(const OrderedJson& now, const Json& known) {
  // Both through the text that a checkpoint holds: numbers are compared as they are written.
  const auto complete = [](const Json& identity) {
    Json all = Json::parse(options_json(TrainOptions()).dump());
    all["t5_rate_factor"] = TransformerConfig().t5_rate_factor;  // what all models had before it could be chosen
    for (const Option<ModelOptions>& option : options_of<ModelOptions>) {
      if (is_in(option.range, default_of(option))) all[option.name] = json_of(default_of(option));  // not the preset's
    }
    all.update(identity);
    return all;
  };
  const Json ours = complete(Json::parse(now.dump())), before = complete(known);
  std::vector<std::string> found;
  for (const auto& [key, value] : ours.items()) {
    const auto was = before.find(key);
    if (was == before.end()) {
      found.push_back(fmt::format("{} is {}, was not known", key, value.dump()));
    } else if (*was != value) {
      found.push_back(fmt::format("{} is {}, was {}", key, value.dump(), was->dump()));
    }
  }
  for (const auto& [key, value] : before.items()) {
    if (!ours.contains(key)) found.push_back(fmt::format("{} is not set, was {}", key, value.dump()));
  }
  return found;
}

}  // namespace alibi
