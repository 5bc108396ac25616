#include "report/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/check.h"
#include "report/json_fields.h"
#include "report/summarize.h"
#include "report/summary.h"
#include "report/tables.h"
#include "report/tasks.h"
#include "report/theme.h"
#include "report/verdict.h"

namespace alibi::report {
namespace {

using Json = nlohmann::ordered_json;

class Writer {
 public:
  static constexpr bool writes = true;

  template <class T>
  void value(const char* key, const T& value) {
    json_[key] = json_of(value);
  }
  template <class T>
  void needed(const char* key, const T& value) {
    json_[key] = json_of(value);
  }
  template <class Integer>
  void within(const char* key, Integer value, Integer, Integer) {
    json_[key] = value;
  }
  void measurement(const char* key, double value, bool gap, bool) { json_[key] = gap ? Json(nullptr) : json_of(value); }
  void unless_unknown(const char* key, double value) {
    if (std::isfinite(value)) json_[key] = value;
  }
  template <class T>
  void unless_empty(const char* key, const T& value) {
    if (!value.empty()) json_[key] = json_of(value);
  }
  void interval(const Interval& interval) {
    if (std::isfinite(interval.low)) json_["interval"] = json_of(std::vector<double>{interval.low, interval.high});
  }
  template <class T>
  void list(const char* key, const std::vector<T>& items) {
    Json& array = json_[key] = Json::array();
    for (const T& item : items) {
      Writer writer;
      fields(writer, item);
      array.push_back(std::move(writer.json_));
    }
  }
  template <class Visit>
  void group(const char* key, const Visit& visit) {
    Writer writer;
    visit(writer);
    json_[key] = std::move(writer.json_);
  }
  void loss(const std::vector<LossPoint>& points) {
    for (const char* key : {"loss", "loss_tokens", "loss_steps"}) json_[key] = Json::array();
    for (const LossPoint& point : points) {
      json_["loss"].push_back(json_of(point.loss));
      json_["loss_tokens"].push_back(point.tokens);
      json_["loss_steps"].push_back(point.step);
    }
  }
  void pairs(const char* key, const std::vector<std::pair<std::string, std::string>>& values) {
    json_[key] = Json::object();
    for (const auto& [name, value] : values) json_[key][name] = value;
  }

  static bool has(const char*, bool present) { return present; }
  static const char* where() { return "results"; }
  Json& json() { return json_; }

 private:
  template <class T>
  static Json json_of(const T& value) {
    return value;
  }
  static Json json_of(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }
  static Json json_of(const std::vector<double>& values) {
    Json array = Json::array();
    for (const double value : values) array.push_back(json_of(value));
    return array;
  }

  Json json_ = Json::object();
};

template <class T>
Json json_of_fields(const T& value) {
  Writer writer;
  fields(writer, value);
  return std::move(writer.json());
}

/// One object of the file. `where` is its path in error messages.
class Reader {
 public:
  static constexpr bool writes = false;

  Reader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    check(json_.is_object(), "[report] {} is {}, expected an object", where_, json_.type_name());
  }

  template <class T>
  void value(const char* key, T& value) const {
    const auto found = json_.find(key);
    if (found != json_.end()) convert(*found, key, value);
  }
  /// Reads a required key, which every version has written.
  template <class T>
  void needed(const char* key, T& result) const {
    check(json_.contains(key), "[report] {}.{} is missing", where_, key);
    value(key, result);
  }
  template <class Integer>
  void within(const char* key, Integer& value, Integer least, Integer most) const {
    needed(key, value);
    check(value >= least && value <= most, "[report] {}.{} is {}, expected {} to {}", where_, key, value, least, most);
  }
  void measurement(const char* key, double& result, bool gap, bool is_needed) const {
    result = std::numeric_limits<double>::quiet_NaN();
    is_needed && !gap ? needed(key, result) : value(key, result);
  }
  void unless_unknown(const char* key, double& result) const { value(key, result); }
  template <class T>
  void unless_empty(const char* key, T& result) const {
    value(key, result);
  }
  void interval(Interval& interval) const {
    std::vector<double> ends;
    value("interval", ends);
    if (ends.empty()) return;
    check(ends.size() == 2, "[report] {}.interval has {} ends, expected 2", where_, ends.size());
    interval = {ends[0], ends[1]};
  }
  template <class T>
  void list(const char* key, std::vector<T>& items) const {
    each(key, [&](Reader& item) { fields(item, items.emplace_back()); });
  }
  template <class Visit>
  void group(const char* key, const Visit& visit) const {
    static const Json empty = Json::object();
    const auto found = json_.find(key);
    Reader reader(found == json_.end() ? empty : *found, where_ + "." + key);
    visit(reader);
  }
  void loss(std::vector<LossPoint>& points) const {
    std::vector<double> loss;
    std::vector<int64_t> tokens, steps;
    value("loss", loss);
    value("loss_tokens", tokens);
    value("loss_steps", steps);
    for (const auto& [key, values] : {std::pair("loss_tokens", &tokens), std::pair("loss_steps", &steps)}) {
      check(values->size() == loss.size() || values->empty(), "[report] {}.{} has {} values, loss has {}", where_, key,
            values->size(), loss.size());
    }
    for (size_t i = 0; i < loss.size(); ++i) {
      points.push_back({steps.empty() ? 0 : steps[i], tokens.empty() ? 0 : tokens[i], loss[i]});
    }
  }
  void pairs(const char* key, std::vector<std::pair<std::string, std::string>>& values) const {
    group(key, [&](const Reader& object) {
      for (const auto& item : object.json_.items()) {
        object.value(item.key().c_str(), values.emplace_back(item.key(), "").second);
      }
    });
  }

  template <class Use>
  void each(const char* key, const Use& use) const {
    const auto found = json_.find(key);
    if (found == json_.end()) return;
    check(found->is_array(), "[report] {}.{} is {}, expected an array", where_, key, found->type_name());
    size_t index = 0;
    for (const Json& item : *found) {
      Reader reader(item, fmt::format("{}.{}[{}]", where_, key, index++));
      use(reader);
    }
  }
  bool has(const char* key, bool = false) const { return json_.contains(key); }
  const std::string& where() const { return where_; }

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

/// nlohmann's pretty printer puts each element of an array on its own line. Here an array of numbers takes one line,
/// because loss curves are long, and so does a row of a table.
void write(const Json& json, int indent, std::string& out) {
  const auto leaf = [&](const Json& value) { out += value.dump(-1, ' ', false, Json::error_handler_t::replace); };
  // A row is an array of arrays of texts.
  const auto is_row = [](const Json& value) { return value.is_array() && !value.empty() && value.front().is_array(); };
  const bool nested = json.is_object() || (json.is_array() && !json.empty() && json.front().is_structured() &&
                                           (!is_row(json) || is_row(json.front())));
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

/// [text, second text, kind, reason of a gap]; the kind is "method", "trained", "best", "gap", "" or the value of a
/// bar.
Json json_of(const Heading& heading, bool is_trained = false) {
  return Json::array({heading.text, heading.more, heading.is_method ? "method" : is_trained ? "trained" : ""});
}
Json json_of(const Cell& cell) {
  const bool is_bar = cell.value > 0 && std::isfinite(cell.value);
  const Json kind = !cell.gap.empty() ? Json("gap")
                    : cell.is_best    ? Json("best")
                    : is_bar          ? Json(cell.value)
                                      : Json("");
  return Json::array({cell.text, cell.more, kind, cell.gap});
}

Json json_of(const Table& table) {
  Json columns = Json::array(), rows = Json::array();
  for (const Heading& heading : table.columns) columns.push_back(json_of(heading));
  for (const TableRow& row : table.rows) {
    Json& cells = rows.emplace_back(Json::array({json_of(row.head, row.is_trained)}));
    for (const Cell& cell : row.cells) cells.push_back(json_of(cell));
  }
  return {{"caption", table.caption}, {"columns", columns}, {"rows", rows}};
}

/// What follows from the runs on tasks.
Json json_of_tasks(const CompareResults& results) {
  Json tasks = Json::array();
  for (const TaskResults& result : results.tasks) {
    Json& task = tasks.emplace_back(json_of_fields(result.task));
    task.erase("points");
    task["beside_text"] = result.beside_text;
    if (const std::string note = control_note(result); !note.empty()) task["warning"] = note;
    task["methods"] = Json::array();
    for (const MethodResults& method : result.methods) {
      Json points = Json::array();
      for (const AnswerPoint& point : method.task.points) {
        Json& entry = points.emplace_back(json_of_fields(point));
        entry["accuracy"] = point.accuracy();
        entry["seed_accuracies"] = Json::array();
        for (const AnswerPoint& of_seed : answers_at(method.runs, point.length, point.distance)) {
          entry["seed_accuracies"].push_back(of_seed.accuracy());
        }
      }
      task["methods"].push_back({{"name", method.name},
                                 {"seeds", method.seeds},
                                 {"largest_length", method.largest_length},
                                 {"largest_distance", method.largest_distance},
                                 {"points", points}});
    }
  }
  return tasks;
}

/// What the page shows and does not compute: sentences and tables, as on the terminal, and how each method looks.
Json report_of(const CompareResults& results) {
  constexpr const char* kMarkers[] = {"circle", "square", "triangle", "diamond", "down_triangle", "ring"};
  Json styles = Json::object(), tables = Json::object();
  const auto add_table = [&](const char* name, const Table& table) {
    if (!table.rows.empty()) tables[name] = json_of(table);
  };
  const auto add_style = [&](const std::string& name) {
    const MethodStyle style = style_of(name);
    styles[name] = {{"color", style.name},
                    {"marker", kMarkers[static_cast<size_t>(style.marker)]},
                    {"is_subject", style.is_subject}};
  };
  for (const MethodResults& method : results.methods) add_style(method.name);
  for (const TaskResults& task : results.tasks) {
    for (const MethodResults& method : task.methods) add_style(method.name);
    add_table(("task " + title_of(task)).c_str(), accuracy_table(task));
  }
  add_table("tasks", reach_table(results));
  for (const MethodSpeed& speed : results.speed) add_style(speed.name());
  add_table("perplexity", perplexity_table(results));
  add_table("bits", bits_table(results));
  if (results.methods.size() > 1) add_table("differences", difference_table(results, all_lengths(results)));
  if (const std::vector<WayToRead> ways = ways_to_read(results); !ways.empty()) {
    add_table("ways", ways_table(results, ways));
  }
  add_table("speed", speed_table(results));
  add_table("cost", cost_table(results));
  return {{"verdict", verdict(results)},
          {"early_tokens", early_token_notes(results)},
          {"speed_note", speed_note(results)},
          {"styles", styles},
          {"tables", tables}};
}

Json parse(std::string_view text, const std::string& source) {
  const std::string_view name = source.empty() ? std::string_view("the text") : source;
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    const std::string_view before = text.substr(0, error.byte > 0 ? error.byte - 1 : 0);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t column = before.size() - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0 if there is no line end
    if (before.size() >= text.size())
      fail(
          "[report] {} is truncated: it ends in line {}, within a value; restore "
          "it from a copy or run the comparison again",
          name, line);
    fail("[report] {} is not valid JSON: syntax error in line {}, column {}", name, line, column);
  } catch (const Json::out_of_range&) {
    fail("[report] {} contains a number outside the range of a double", name);
  }
}

}  // namespace

Json to_json(const RunResults& run) { return json_of_fields(run); }

Json to_json(const EvaluationPoint& point) { return json_of_fields(point); }

Json to_json(const std::vector<MethodSpeed>& speeds) {
  Writer writer;
  writer.list("speed", speeds);
  return std::move(writer.json()["speed"]);
}

std::string to_json(const CompareResults& results) {
  Writer writer;
  fields(writer, results, [&] {
    Json& methods = writer.json()["methods"] = Json::array();
    Json& runs = writer.json()["runs"] = Json::array();
    for (const MethodResults& method : results.methods) {
      Json json = {{"name", method.name}, {"seeds", method.seeds}};
      json.update(to_json(static_cast<const RunResults&>(method)));
      json.erase("seed");
      json["has_not_learned"] = has_not_learned(results, method);
      methods.push_back(std::move(json));
    }
    for (const RunResults& run : runs_of(results)) runs.push_back(to_json(run));
    if (!results.tasks.empty()) writer.json()["tasks"] = json_of_tasks(results);
  });
  writer.json()["report"] = report_of(results);
  std::string out;
  write(writer.json(), 0, out);
  return out + "\n";
}

RunResults run_from_json(const nlohmann::json& json, const std::string& where) {
  const Json ordered = Json::parse(json.dump());
  Reader reader(ordered, where);
  RunResults run;
  fields(reader, run);
  return run;
}

std::vector<MethodSpeed> speed_from_json(const nlohmann::json& json, const std::string& where) {
  const Json ordered = {{"speed", Json::parse(json.dump())}};
  std::vector<MethodSpeed> speeds;
  Reader(ordered, where).list("speed", speeds);
  return speeds;
}

CompareResults results_from_json(std::string_view text, const std::string& source) {
  const Json json = parse(text, source);
  Reader top(json, source.empty() ? "results" : source + ": results");
  CompareResults results;
  std::vector<RunResults> runs;
  fields(top, results, [&] {
    check(top.has("runs"), "[report] {}.runs is missing", top.where());
    top.each("runs", [&](Reader& item) {
      RunResults& run = runs.emplace_back();
      item.needed("method", run.method);
      item.needed("seed", run.seed);
      fields(item, run);
      item.within("train_length", run.train_length, int64_t{1}, kMaxTokens);
    });
  });
  take_runs(results, runs);
  return results;
}

}  // namespace alibi::report
