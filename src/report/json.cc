#include "report/json.h"

#include <cmath>

namespace alibi::report {

namespace {

using Json = nlohmann::ordered_json;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json numbers(const std::vector<double>& values) {
  Json array = Json::array();
  for (const double value : values) array.push_back(number(value));
  return array;
}

Json interval_json(const Interval& interval) { return Json::array({number(interval.low), number(interval.high)}); }

Json context_json(const ContextPoint& point) {
  Json json = {{"context", point.context}, {"nll", number(point.nll)}};
  if (std::isfinite(point.interval.low)) json["interval"] = interval_json(point.interval);
  if (!point.block_nll.empty()) json["block_nll"] = numbers(point.block_nll);
  return json;
}

Json attention_json(const AttentionMap& map) {
  Json heads = Json::array();
  for (const HeadAttention& head : map.heads) {
    heads.push_back({{"layer", head.layer},
                     {"head", head.head},
                     {"slope", number(head.slope)},
                     {"weight", numbers(head.weight)},
                     {"bias", numbers(head.bias)}});
  }
  return {{"length", map.length}, {"distances", map.distances}, {"heads", heads}};
}

Json run_json(const RunResults& method) {
  Json loss = Json::array(), loss_tokens = Json::array(), loss_steps = Json::array();
  for (const LossPoint& point : method.loss) {
    loss.push_back(number(point.loss));
    loss_tokens.push_back(point.tokens);
    loss_steps.push_back(point.step);
  }
  Json evaluations = Json::array();
  for (const EvaluationPoint& point : method.evaluations) evaluations.push_back(to_json(point));
  Json sliding = Json::array(), context = Json::array();
  for (const EvaluationPoint& point : method.sliding) sliding.push_back(to_json(point));
  Json interpolated = Json::array(), streaming = Json::array();
  for (const EvaluationPoint& point : method.interpolated) interpolated.push_back(to_json(point));
  for (const EvaluationPoint& point : method.streaming) streaming.push_back(to_json(point));
  for (const ContextPoint& point : method.context) context.push_back(context_json(point));
  Json json = {
      {"method", method.method},
      {"train_length", method.train_length},
      {"seed", method.seed},
      {"parameters", method.parameters},
      {"train",
       {{"tokens", method.train_tokens},
        {"learning_rate", number(method.learning_rate)},
        {"seconds", number(method.train_seconds)},
        {"tokens_per_second", number(method.train_tokens_per_second)},
        {"flops_per_token", number(method.train_flops_per_token)},
        {"peak_bytes", method.train_peak_bytes},
        {"loss", loss},
        {"loss_tokens", loss_tokens},
        {"loss_steps", loss_steps}}},
      {"eval", evaluations},
      {"sliding", sliding},
      {"interpolated", interpolated},
      {"streaming", streaming},
      {"context", context},
      {"eval_peak_bytes", method.eval_peak_bytes},
      {"per_position", {{"length", method.per_position_length}, {"nll", numbers(method.per_position_nll)}}},
  };
  if (!method.attention.heads.empty()) json["attention"] = attention_json(method.attention);
  json["sample"] = {{"prompt", method.sample_prompt},
                    {"text", method.sample},
                    {"note", method.sample_note},
                    {"bytes_at_train_length", method.sample_bytes_at_train_length}};
  json["model_folder"] = method.model_folder;
  if (!method.diverged.empty()) json["diverged"] = method.diverged;
  return json;
}

/// The means, with the numbers of each run behind them.
Json method_json(const MethodResults& method) {
  Json json = {{"name", method.name}, {"seeds", method.seeds}};
  json.update(run_json(method));
  json.erase("seed");
  return json;
}

Json speed_json(const MethodSpeed& speed) {
  Json points = Json::array();
  for (const SpeedPoint& point : speed.points) {
    points.push_back({{"work", point.work},
                      {"length", point.length},
                      {"tokens_per_second", number(point.tokens_per_second)},
                      {"cpu_seconds_per_million_tokens", number(point.cpu_seconds)},
                      {"spread", number(point.spread)}});
  }
  return {{"method", speed.method}, {"skip_rule", !speed.all_keys}, {"points", points}};
}

Json held_out_json(const HeldOut& held_out) {
  Json files = Json::array();
  for (const HeldOutFile& file : held_out.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"scored_bytes", file.scored_bytes}});
  }
  return {{"bytes", held_out.bytes}, {"block_tokens", held_out.block_tokens}, {"files", files}};
}

/// nlohmann's pretty printer puts each number of a loss curve on a line of its own; here such arrays take one line.
void write(const Json& json, int indent, std::string& out) {
  const auto leaf = [&](const Json& value) { out += value.dump(-1, ' ', false, Json::error_handler_t::replace); };
  const bool nested = json.is_object() || (json.is_array() && !json.empty() && json.front().is_structured());
  if (!nested || json.empty()) return leaf(json);
  const std::string margin(static_cast<size_t>(indent) + 2, ' ');
  bool first = true;
  out += json.is_object() ? "{" : "[";
  for (const auto& item : json.items()) {
    out += first ? "\n" : ",\n";
    out += margin;
    first = false;
    if (json.is_object()) {
      leaf(item.key());
      out += ": ";
    }
    write(item.value(), indent + 2, out);
  }
  out += "\n";
  out.append(static_cast<size_t>(indent), ' ');
  out += json.is_object() ? "}" : "]";
}

}  // namespace

nlohmann::ordered_json to_json(const RunResults& run) { return run_json(run); }

nlohmann::ordered_json to_json(const std::vector<MethodSpeed>& speeds) {
  Json json = Json::array();
  for (const MethodSpeed& speed : speeds) json.push_back(speed_json(speed));
  return json;
}

nlohmann::ordered_json to_json(const EvaluationPoint& point) {
  Json json = {{"length", point.length}, {"stride", point.stride}};
  const bool gap = !point.gap.empty();
  const auto unless_gap = [gap](double value) { return gap ? Json(nullptr) : number(value); };
  json["tokens"] = gap ? 0 : point.tokens;
  json["nll"] = unless_gap(point.nll);
  json["perplexity"] = unless_gap(point.perplexity);
  json["bits_per_byte"] = unless_gap(point.bits_per_byte);
  json["tokens_per_second"] = unless_gap(point.tokens_per_second);
  if (std::isfinite(point.deviation)) json["deviation"] = point.deviation;
  if (std::isfinite(point.interval.low)) json["interval"] = interval_json(point.interval);
  if (!point.block_nll.empty()) json["block_nll"] = numbers(point.block_nll);
  if (gap) json["error"] = point.gap;
  return json;
}

std::string to_json(const CompareResults& results) {
  Json json = {
      {"train_length", results.train_length}, {"seed", results.seed},
      {"threads", results.threads},           {"preset", results.preset},
      {"parameters", results.parameters},
  };
  json["corpus"] = {{"name", results.corpus_name},
                    {"train_bytes", results.train_bytes},
                    {"valid_bytes", results.valid_bytes},
                    {"train_files", results.train_files},
                    {"valid_files", results.valid_files}};
  json["held_out"] = held_out_json(results.held_out);
  json["tokenizer"] = {{"kind", results.tokenizer}, {"vocab_size", results.vocab_size}};
  json["methods"] = Json::array();
  for (const MethodResults& method : results.methods) json["methods"].push_back(method_json(method));
  json["runs"] = Json::array();
  for (const MethodResults& method : results.methods) {
    for (const RunResults& run : method.runs) json["runs"].push_back(run_json(run));
  }
  json["speed"] = to_json(results.speed);
  json["runs_planned"] = results.runs_planned;
  json["command"] = results.command;
  json["machine"] = results.machine;
  json["version"] = results.version;
  json["started"] = results.started;
  json["seconds"] = number(results.seconds);
  json["settings"] = Json::object();
  for (const auto& [key, value] : results.settings) json["settings"][key] = value;
  std::string out;
  write(json, 0, out);
  return out + "\n";
}

}  // namespace alibi::report
