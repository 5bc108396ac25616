#include <limits>

#include "core/check.h"
#include "report/json.h"
#include "report/summarize.h"

namespace alibi {

namespace {

using Json = nlohmann::ordered_json;

/// One object of the file; `where` is its path for messages.
class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    check(json_.is_object(), "[results.json] {} is {}, expected an object", where_, json_.type_name());
  }

  template <class T>
  void get(const char* key, T& value) const {
    const auto found = json_.find(key);
    if (found != json_.end()) convert(*found, key, value);
  }

  Reader object(const char* key) const {
    static const Json empty = Json::object();
    const auto found = json_.find(key);
    return {found == json_.end() ? empty : *found, where_ + "." + key};
  }

  template <class Use>
  void each(const char* key, const Use& use) const {
    const auto found = json_.find(key);
    if (found == json_.end()) return;
    check(found->is_array(), "[results.json] {}.{} is {}, expected an array", where_, key, found->type_name());
    size_t index = 0;
    for (const Json& item : *found) use(Reader(item, fmt::format("{}.{}[{}]", where_, key, index++)));
  }

  const Json& json() const { return json_; }

 private:
  void convert(const Json& json, const char* key, std::string& value) const {
    check(json.is_string(), "[results.json] {}.{} is {}, expected a string", where_, key, json.type_name());
    value = json.get<std::string>();
  }
  void convert(const Json& json, const char* key, double& value) const {
    check(json.is_number() || json.is_null(), "[results.json] {}.{} is {}, expected a number or null", where_, key,
          json.type_name());
    value = json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
  }
  void convert(const Json& json, const char* key, bool& value) const {
    check(json.is_boolean(), "[results.json] {}.{} is {}, expected true or false", where_, key, json.dump());
    value = json.get<bool>();
  }
  template <class Integer>
  void convert(const Json& json, const char* key, Integer& value) const {
    check(json.is_number_integer(), "[results.json] {}.{} is {}, expected an integer", where_, key, json.dump());
    value = json.get<Integer>();
  }
  template <class T>
  void convert(const Json& json, const char* key, std::vector<T>& values) const {
    check(json.is_array(), "[results.json] {}.{} is {}, expected an array", where_, key, json.type_name());
    values.clear();
    for (const Json& item : json) {
      T value{};
      convert(item, key, value);
      values.push_back(value);
    }
  }

  const Json& json_;
  std::string where_;
};

Interval read_interval(const Reader& json) {
  std::vector<double> ends;
  json.get("interval", ends);
  if (ends.empty()) return {};
  check(ends.size() == 2, "[results.json] an interval has {} ends, expected 2", ends.size());
  return {ends[0], ends[1]};
}

HeadAttention read_head(const Reader& json) {
  HeadAttention head;
  json.get("layer", head.layer);
  json.get("head", head.head);
  json.get("slope", head.slope);
  json.get("weight", head.weight);
  json.get("bias", head.bias);
  return head;
}

EvaluationPoint read_evaluation(const Reader& json) {
  EvaluationPoint point;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  point.nll = point.perplexity = point.bits_per_byte = point.tokens_per_second = nan;
  json.get("length", point.length);
  json.get("stride", point.stride);
  json.get("tokens", point.tokens);
  json.get("nll", point.nll);
  json.get("perplexity", point.perplexity);
  json.get("bits_per_byte", point.bits_per_byte);
  json.get("tokens_per_second", point.tokens_per_second);
  json.get("block_nll", point.block_nll);
  json.get("deviation", point.deviation);
  point.interval = read_interval(json);
  json.get("error", point.gap);
  return point;
}

ContextPoint read_context(const Reader& json) {
  ContextPoint point;
  json.get("context", point.context);
  json.get("nll", point.nll);
  json.get("block_nll", point.block_nll);
  point.interval = read_interval(json);
  return point;
}

std::vector<LossPoint> read_loss(const Reader& train) {
  std::vector<double> loss;
  std::vector<int64_t> tokens, steps;
  train.get("loss", loss);
  train.get("loss_tokens", tokens);
  train.get("loss_steps", steps);
  check(tokens.size() == loss.size() || tokens.empty(), "[results.json] loss_tokens has {} values, loss has {}",
        tokens.size(), loss.size());
  check(steps.size() == loss.size() || steps.empty(), "[results.json] loss_steps has {} values, loss has {}",
        steps.size(), loss.size());
  std::vector<LossPoint> points(loss.size());
  for (size_t i = 0; i < loss.size(); ++i) {
    points[i] = {steps.empty() ? 0 : steps[i], tokens.empty() ? 0 : tokens[i], loss[i]};
  }
  return points;
}

RunResults read_run(const Reader& json) {
  RunResults method;
  json.get("method", method.method);
  json.get("train_length", method.train_length);
  json.get("seed", method.seed);
  json.get("parameters", method.parameters);
  const Reader train = json.object("train");
  train.get("tokens", method.train_tokens);
  train.get("learning_rate", method.learning_rate);
  train.get("flops_per_token", method.train_flops_per_token);
  train.get("seconds", method.train_seconds);
  train.get("tokens_per_second", method.train_tokens_per_second);
  train.get("peak_bytes", method.train_peak_bytes);
  method.loss = read_loss(train);
  json.each("eval", [&](const Reader& item) { method.evaluations.push_back(read_evaluation(item)); });
  json.each("sliding", [&](const Reader& item) { method.sliding.push_back(read_evaluation(item)); });
  json.each("interpolated", [&](const Reader& item) { method.interpolated.push_back(read_evaluation(item)); });
  json.each("streaming", [&](const Reader& item) { method.streaming.push_back(read_evaluation(item)); });
  json.each("context", [&](const Reader& item) { method.context.push_back(read_context(item)); });
  const Reader attention = json.object("attention");
  attention.get("length", method.attention.length);
  attention.get("distances", method.attention.distances);
  attention.each("heads", [&](const Reader& item) { method.attention.heads.push_back(read_head(item)); });
  json.get("eval_peak_bytes", method.eval_peak_bytes);
  const Reader per_position = json.object("per_position");
  per_position.get("length", method.per_position_length);
  per_position.get("nll", method.per_position_nll);
  const Reader sample = json.object("sample");
  sample.get("prompt", method.sample_prompt);
  sample.get("text", method.sample);
  sample.get("note", method.sample_note);
  sample.get("bytes_at_train_length", method.sample_bytes_at_train_length);
  json.get("model_folder", method.model_folder);
  json.get("diverged", method.diverged);
  return method;
}

/// Of versions that knew one run of a method: it is that run.
void add_as_run(const Reader& json, const CompareResults& results, std::vector<RunResults>& runs) {
  RunResults run = read_run(json);
  json.get("name", run.method);
  if (run.train_length == 0) run.train_length = results.train_length;
  run.seed = results.seed;
  runs.push_back(std::move(run));
}

std::vector<MethodSpeed> read_speed(const Reader& json) {
  std::vector<MethodSpeed> speeds;
  json.each("speed", [&](const Reader& item) {
    MethodSpeed& speed = speeds.emplace_back();
    bool skip_rule = true;
    item.get("method", speed.method);
    item.get("skip_rule", skip_rule);
    speed.all_keys = !skip_rule;
    item.each("points", [&](const Reader& measured) {
      SpeedPoint& point = speed.points.emplace_back();
      measured.get("work", point.work);
      measured.get("length", point.length);
      measured.get("tokens_per_second", point.tokens_per_second);
      measured.get("cpu_seconds_per_million_tokens", point.cpu_seconds);
      measured.get("spread", point.spread);
    });
  });
  return speeds;
}

HeldOut read_held_out(const Reader& json) {
  HeldOut held_out;
  json.get("bytes", held_out.bytes);
  json.get("block_tokens", held_out.block_tokens);
  json.each("files", [&](const Reader& item) {
    HeldOutFile file;
    item.get("name", file.name);
    item.get("bytes", file.bytes);
    item.get("scored_bytes", file.scored_bytes);
    held_out.files.push_back(std::move(file));
  });
  return held_out;
}

}  // namespace

RunResults run_from_json(const nlohmann::json& json, const std::string& where) {
  return read_run(Reader(Json::parse(json.dump()), where));
}

std::vector<MethodSpeed> speed_from_json(const nlohmann::json& json, const std::string& where) {
  return read_speed(Reader(Json{{"speed", Json::parse(json.dump())}}, where));
}

CompareResults results_from_json(std::string_view text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    fail("[results.json] not JSON: {}", error.what());
  }
  const Reader top(json, "results");
  CompareResults results;
  top.get("train_length", results.train_length);
  top.get("seed", results.seed);
  top.get("threads", results.threads);
  top.get("preset", results.preset);
  top.get("parameters", results.parameters);
  const Reader corpus = top.object("corpus");
  corpus.get("name", results.corpus_name);
  const Reader tokenizer = top.object("tokenizer");
  tokenizer.get("kind", results.tokenizer);
  tokenizer.get("vocab_size", results.vocab_size);
  corpus.get("train_bytes", results.train_bytes);
  corpus.get("valid_bytes", results.valid_bytes);
  corpus.get("train_files", results.train_files);
  corpus.get("valid_files", results.valid_files);
  results.held_out = read_held_out(top.object("held_out"));
  std::vector<RunResults> runs;
  if (json.contains("runs")) {
    top.each("runs", [&](const Reader& item) { runs.push_back(read_run(item)); });
  } else {
    top.each("methods", [&](const Reader& item) { add_as_run(item, results, runs); });
  }
  results.methods = methods_of(runs, results.held_out);
  results.speed = read_speed(top);
  top.get("runs_planned", results.runs_planned);
  top.get("command", results.command);
  top.get("machine", results.machine);
  top.get("version", results.version);
  top.get("started", results.started);
  top.get("seconds", results.seconds);
  const Reader settings = top.object("settings");
  for (const auto& item : settings.json().items()) {
    results.settings.emplace_back(item.key(), "");
    settings.get(item.key().c_str(), results.settings.back().second);
  }
  return results;
}

}  // namespace alibi
