#include <algorithm>
#include <limits>
#include <utility>

#include "core/check.h"
#include "report/json.h"
#include "report/summarize.h"

namespace alibi::report {

namespace {

using Json = nlohmann::ordered_json;

/// One object of the file; `where` is its path for messages.
class Reader {
 public:
  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    check(json_.is_object(), "[report] {} is {}, expected an object", where_, json_.type_name());
  }

  template <class T>
  void get(const char* key, T& value) const {
    const auto found = json_.find(key);
    if (found != json_.end()) convert(*found, key, value);
  }

  /// For what every version wrote, and no report can do without.
  template <class T>
  void need(const char* key, T& value) const {
    check(has(key), "[report] {}.{} is missing", where_, key);
    get(key, value);
  }

  template <class Integer>
  void need_within(const char* key, Integer& value, Integer least, Integer most) const {
    need(key, value);
    check(value >= least && value <= most, "[report] {}.{} is {}, expected {} to {}", where_, key, value, least, most);
  }

  bool has(const char* key) const { return json_.contains(key); }
  const std::string& where() const { return where_; }

  Reader object(const char* key) const {
    static const Json empty = Json::object();
    const auto found = json_.find(key);
    return {found == json_.end() ? empty : *found, where_ + "." + key};
  }

  template <class Use>
  void each(const char* key, const Use& use) const {
    const auto found = json_.find(key);
    if (found == json_.end()) return;
    check(found->is_array(), "[report] {}.{} is {}, expected an array", where_, key, found->type_name());
    size_t index = 0;
    for (const Json& item : *found) use(Reader(item, fmt::format("{}.{}[{}]", where_, key, index++)));
  }

  const Json& json() const { return json_; }

 private:
  void convert(const Json& json, const char* key, std::string& value) const {
    check(json.is_string(), "[report] {}.{} is {}, expected a string", where_, key, json.type_name());
    value = json.get<std::string>();
  }
  void convert(const Json& json, const char* key, double& value) const {
    check(json.is_number() || json.is_null(), "[report] {}.{} is {}, expected a number or null", where_, key,
          json.type_name());
    value = json.is_null() ? std::numeric_limits<double>::quiet_NaN() : json.get<double>();
  }
  void convert(const Json& json, const char* key, bool& value) const {
    check(json.is_boolean(), "[report] {}.{} is {}, expected true or false", where_, key, json.type_name());
    value = json.get<bool>();
  }
  template <class Integer>
  void convert(const Json& json, const char* key, Integer& value) const {
    check(json.is_number(), "[report] {}.{} is {}, expected an integer", where_, key, json.type_name());
    const bool fits = json.is_number_unsigned()  ? std::in_range<Integer>(json.get<uint64_t>())
                      : json.is_number_integer() ? std::in_range<Integer>(json.get<int64_t>())
                                                 : false;
    check(fits, "[report] {}.{} is {}, expected an integer of {} bits", where_, key, json.dump(), 8 * sizeof(Integer));
    value = json.get<Integer>();
  }
  template <class T>
  void convert(const Json& json, const char* key, std::vector<T>& values) const {
    check(json.is_array(), "[report] {}.{} is {}, expected an array", where_, key, json.type_name());
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

/// Tokens of a window; the most is what a double counts exactly.
constexpr int64_t kMostTokens = int64_t{1} << 53;

Interval read_interval(const Reader& json) {
  std::vector<double> ends;
  json.get("interval", ends);
  if (ends.empty()) return {};
  check(ends.size() == 2, "[report] {}.interval has {} ends, expected 2", json.where(), ends.size());
  return {ends[0], ends[1]};
}

HeadAttention read_head(const Reader& json) {
  HeadAttention head;
  constexpr int kMostPlaces = 65535;
  json.need_within("layer", head.layer, 0, kMostPlaces);
  json.need_within("head", head.head, 0, kMostPlaces);
  json.get("slope", head.slope);
  json.need("weight", head.weight);
  json.get("bias", head.bias);
  return head;
}

EvaluationPoint read_evaluation(const Reader& json) {
  EvaluationPoint point;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  point.nll = point.perplexity = point.bits_per_byte = point.tokens_per_second = nan;
  json.need_within("length", point.length, int64_t{1}, kMostTokens);
  json.get("stride", point.stride);
  json.get("tokens", point.tokens);
  if (!json.has("error")) {
    json.need("nll", point.nll);
    json.need("perplexity", point.perplexity);
  }
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
  json.need_within("context", point.context, int64_t{1}, kMostTokens);
  json.need("nll", point.nll);
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
  const auto check_size = [&](const char* key, const std::vector<int64_t>& values) {
    check(values.size() == loss.size() || values.empty(), "[report] {}.{} has {} values, loss has {}", train.where(),
          key, values.size(), loss.size());
  };
  check_size("loss_tokens", tokens);
  check_size("loss_steps", steps);
  std::vector<LossPoint> points(loss.size());
  for (size_t i = 0; i < loss.size(); ++i) {
    points[i] = {steps.empty() ? 0 : steps[i], tokens.empty() ? 0 : tokens[i], loss[i]};
  }
  return points;
}

void read_attention(const Reader& json, AttentionMap& map) {
  json.get("length", map.length);
  json.get("distances", map.distances);
  json.each("heads", [&](const Reader& item) { map.heads.push_back(read_head(item)); });
  const bool rise = std::is_sorted(map.distances.begin(), map.distances.end());
  check(map.distances.empty() || (rise && map.distances.front() >= 0 && map.distances.back() <= kMostTokens),
        "[report] {}.distances are not distances that rise", json.where());
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
  read_attention(json.object("attention"), method.attention);
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

RunResults read_full_run(const Reader& json) {
  for (const char* key : {"method", "seed"}) {
    check(json.has(key), "[report] {}.{} is missing", json.where(), key);
  }
  RunResults run = read_run(json);
  json.need_within("train_length", run.train_length, int64_t{1}, kMostTokens);
  return run;
}

/// Of versions that knew one run of a method: it is that run.
void add_as_run(const Reader& json, const CompareResults& results, std::vector<RunResults>& runs) {
  RunResults run = read_run(json);
  json.need("name", run.method);
  if (run.train_length == 0) run.train_length = results.train_length;
  run.seed = results.seed;
  runs.push_back(std::move(run));
}

std::vector<MethodSpeed> read_speed(const Reader& json) {
  std::vector<MethodSpeed> speeds;
  json.each("speed", [&](const Reader& item) {
    MethodSpeed& speed = speeds.emplace_back();
    bool skip_rule = true;
    item.need("method", speed.method);
    item.get("skip_rule", skip_rule);
    speed.all_keys = !skip_rule;
    item.each("points", [&](const Reader& measured) {
      SpeedPoint& point = speed.points.emplace_back();
      measured.need("work", point.work);
      measured.need("length", point.length);
      measured.need("tokens_per_second", point.tokens_per_second);
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

Json parse(std::string_view text, const std::string& source) {
  const std::string_view name = source.empty() ? std::string_view("the text") : source;
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    const std::string_view before = text.substr(0, error.byte > 0 ? error.byte - 1 : 0);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t column = before.size() - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
    if (before.size() >= text.size()) fail("[report] {} is cut short: it ends in line {}", name, line);
    fail("[report] {} is not JSON: line {}, column {}", name, line, column);
  } catch (const Json::out_of_range&) {
    fail("[report] {} holds a number beyond the range of a double", name);
  }
}

}  // namespace

RunResults run_from_json(const nlohmann::json& json, const std::string& where) {
  return read_run(Reader(Json::parse(json.dump()), where));
}

std::vector<MethodSpeed> speed_from_json(const nlohmann::json& json, const std::string& where) {
  return read_speed(Reader(Json{{"speed", Json::parse(json.dump())}}, where));
}

CompareResults results_from_json(std::string_view text, const std::string& source) {
  const Json json = parse(text, source);
  const Reader top(json, source.empty() ? "results" : source + ": results");
  CompareResults results;
  top.need_within("train_length", results.train_length, int64_t{1}, kMostTokens);
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
  if (top.has("runs")) {
    top.each("runs", [&](const Reader& item) { runs.push_back(read_full_run(item)); });
  } else {
    check(top.has("methods"), "[report] {}.runs is missing", top.where());
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

}  // namespace alibi::report
