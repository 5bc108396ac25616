#include "report/tasks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/format.h"
#include "report/map.h"
#include "report/markup.h"
#include "report/summary.h"
#include "report/theme.h"

namespace alibi::report {
namespace {

int64_t longest_of(const TaskResults& task) {
  int64_t longest = 0;
  for (const MethodResults& method : task.methods) {
    for (const AnswerPoint& point : method.task.points) longest = std::max(longest, point.length);
  }
  return longest;
}

/// What the rows of the table and the x axis of the figure are.
struct TableAxis {
  bool are_lengths = false;  ///< because the task has one distance only
  int64_t longest = 0;
  std::set<int64_t> values;

  explicit TableAxis(const TaskResults& task) : longest(longest_of(task)) {
    std::set<int64_t> lengths;
    for (const MethodResults& method : task.methods) {
      for (const AnswerPoint& point : method.task.points) {
        lengths.insert(point.length);
        values.insert(point.distance);
      }
    }
    are_lengths = values.size() == 1;
    if (are_lengths) values = lengths;
  }
  /// The point of the row, or null.
  const AnswerPoint* point(const MethodResults& method, int64_t value) const {
    for (const AnswerPoint& point : method.task.points) {
      if (are_lengths ? point.length == value : point.length == longest && point.distance == value) return &point;
    }
    return nullptr;
  }
};

std::string percent(double share) { return core::format_decimal(100 * share, share < 0.001 ? 2 : 1) + " %"; }

std::string where_of(const TableAxis& rows) {
  return rows.are_lengths ? std::string("by the length of the text")
                          : fmt::format("in texts of {} tokens, by the distance from the information to the answer",
                                        core::format_integer(rows.longest));
}

std::string upper_first(std::string text) {
  if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

}  // namespace

std::string title_of(const TaskResults& task) { return task.task.name + (task.beside_text ? " beside text" : ""); }

std::string reach_text(const TaskResults& task, bool farthest_only) {
  // Methods of the same reach share a sentence; the farthest comes first.
  std::map<std::pair<int64_t, int64_t>, std::vector<std::string>, std::greater<>> names;
  for (const MethodResults& method : task.methods) {
    names[{method.largest_distance, method.largest_length}].push_back(method.name);
  }
  std::vector<std::string> parts;
  for (const auto& [reach, methods] : names) {
    const auto [distance, length] = reach;
    const bool one = methods.size() == 1;
    if (length == 0) {
      parts.push_back(fmt::format("{} {} not answer reliably at {} training length", join_words(methods),
                                  one ? "does" : "do", one ? "its" : "their"));
    } else {
      parts.push_back(fmt::format("{} {} up to distance {} and in texts of up to {} tokens", join_words(methods),
                                  one ? "answers" : "answer", core::format_integer(distance),
                                  core::format_integer(length)));
    }
    if (farthest_only) break;
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

std::string control_note(const TaskResults& task) {
  const bool must_pass = task.task.name == "repeat", must_fail = task.task.name == "parity";
  std::vector<std::string> names;
  for (const MethodResults& method : task.methods) {
    if (must_pass && method.largest_length == 0) names.push_back(method.name);
    if (must_fail && method.largest_distance > method.train_length) names.push_back(method.name);
  }
  if (names.empty()) return "";
  if (must_fail) {
    return fmt::format(
        "Warning: {} {} parity farther than the training length, which hardly any transformer can. Check the "
        "settings before you trust the other tasks.",
        join_words(names), names.size() == 1 ? "answers" : "answer");
  }
  return fmt::format(
      "Warning: {} {} not learned to repeat, which every method can. The other tasks say nothing about {} until "
      "then: train on more --task-tokens or at another rate.",
      join_words(names), names.size() == 1 ? "has" : "have", names.size() == 1 ? "it" : "them");
}

std::vector<std::string> task_sentences(const CompareResults& results) {
  constexpr size_t few = 2;
  const bool is_long = results.tasks.size() > few || !results.methods.empty();  // each figure has the other methods
  std::vector<std::string> sentences;
  std::string seeds;
  for (const TaskResults& task : results.tasks) {
    if (std::string note = control_note(task); !note.empty()) sentences.push_back(std::move(note));
    seeds = number_of_seeds(task.methods);
  }
  for (const TaskResults& task : results.tasks) {
    sentences.push_back(fmt::format("{}: {}.", upper_first(title_of(task)), reach_text(task, is_long)));
  }
  if (seeds == "1") {
    sentences.emplace_back("The answers are from one seed; another seed may answer less far, so give more --seeds.");
  } else if (!seeds.empty()) {
    sentences.push_back(fmt::format("The answers are from {} seeds.", seeds));
  }
  return sentences;
}

Table reach_table(const CompareResults& results) {
  Table table{
      fmt::format("Largest distance at which a method answers, and in parentheses the largest length of the text. The "
                  "95 % interval of the accuracy lies above {:g} % up to there.",
                  100 * kReliable),
      {{"Task"}, {"Chance"}},
      {}};
  std::vector<std::string> names;
  for (const TaskResults& task : results.tasks) {
    for (const MethodResults& method : task.methods) {
      if (std::find(names.begin(), names.end(), method.name) == names.end()) names.push_back(method.name);
    }
  }
  for (const std::string& name : names) table.columns.push_back({name, "", true});
  for (const TaskResults& task : results.tasks) {
    TableRow row{{title_of(task)}, {{percent(task.task.chance)}}};
    int64_t best = 0;
    for (const MethodResults& method : task.methods) best = std::max(best, method.largest_distance);
    for (const std::string& name : names) {
      const auto method = std::find_if(task.methods.begin(), task.methods.end(),
                                       [&](const MethodResults& other) { return other.name == name; });
      if (method == task.methods.end() || method->largest_length == 0) {
        const char* why =
            method == task.methods.end() ? "no run is finished" : "does not answer reliably at its training length";
        row.cells.push_back({.text = "–", .gap = why});
      } else {
        row.cells.push_back({core::format_integer(method->largest_distance),
                             fmt::format("({})", core::format_integer(method->largest_length)),
                             names.size() > 1 && method->largest_distance == best});
      }
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table accuracy_table(const TaskResults& task) {
  const TableAxis rows(task);
  Table table{fmt::format("{}, {}: accuracy in percent {}, with its 95 % interval. Chance is {}.",
                          upper_first(title_of(task)), task.task.meaning, where_of(rows), percent(task.task.chance)),
              {{rows.are_lengths ? "Length" : "Distance up to"}},
              {}};
  for (const MethodResults& method : task.methods) table.columns.push_back({method.name, "", true});
  for (const int64_t value : rows.values) {
    TableRow row{{core::format_integer(value)}, {}};
    for (const MethodResults& method : task.methods) {
      const AnswerPoint* const point = rows.point(method, value);
      if (point == nullptr) {
        row.cells.push_back({.text = "–", .gap = "the model cannot run at this length"});
        continue;
      }
      const auto number = [](double share) { return core::format_decimal(100 * share, 0); };
      row.cells.push_back({core::format_decimal(100 * point->accuracy(), 1),
                           fmt::format("({} to {})", number(point->interval.low), number(point->interval.high)),
                           point->interval.low > kReliable});
    }
    table.rows.push_back(std::move(row));
  }
  const auto is_marked = [](const TableRow& row) { return std::ranges::any_of(row.cells, &Cell::is_best); };
  if (std::ranges::any_of(table.rows, is_marked)) {
    table.caption += fmt::format(" Numbers whose interval lies above {:g} are marked.", 100 * kReliable);
  }
  return table;
}

LineChart accuracy_chart(const TaskResults& task) {
  constexpr double kBesideLines = 240;  // pixels of labels
  const TableAxis rows(task);
  LineChart chart;
  chart.id = fmt::format("task-{}{}", task.task.name, task.beside_text ? "-beside-text" : "");
  chart.width = 720;
  chart.height = 300;
  chart.title = upper_first(title_of(task));
  chart.subtitle = upper_first(task.task.meaning);
  chart.description = reach_text(task);
  for (const MethodResults& method : task.methods) {
    Series series{.method = method.name, .points = {}, .end_value = "", .end_note = ""};
    for (const int64_t value : rows.values) {
      const AnswerPoint* const point = rows.point(method, value);
      if (point == nullptr) continue;
      const double accuracy = 100 * point->accuracy();
      series.end_value = core::format_decimal(accuracy, 0) + " %";
      series.points.push_back(
          {static_cast<double>(value),
           accuracy,
           fmt::format("{} at {}: {} %", method.name, core::format_integer(value), core::format_decimal(accuracy, 1)),
           {100 * point->interval.low, 100 * point->interval.high}});
    }
    chart.series.push_back(std::move(series));
  }
  std::stable_partition(chart.series.begin(), chart.series.end(),
                        [](const Series& series) { return !style_of(series.method).is_subject; });
  const int64_t trained = task.methods.empty() ? 0 : task.methods.front().train_length;
  const bool is_one_length = std::all_of(task.methods.begin(), task.methods.end(),
                                         [&](const MethodResults& method) { return method.train_length == trained; });
  chart.x =
      length_axis({rows.values.begin(), rows.values.end()}, is_one_length ? trained : 0, chart.width - kBesideLines);
  chart.x_label = rows.are_lengths ? "Length of the text in tokens"
                                   : "Distance from the information to the answer, up to this number of tokens";
  chart.y = {.logarithmic = false, .low = -3, .high = 103, .ticks = {}};
  for (const int tick : {0, 20, 40, 60, 80, 100})
    chart.y.ticks.push_back({static_cast<double>(tick), std::to_string(tick), ""});
  chart.y_label = "Right answers in percent";
  chart.level = 100 * task.task.chance;
  chart.level_label = "chance";
  if (is_one_length) chart.mark = static_cast<double>(trained);
  chart.mark_label = fmt::format("training length {}", core::format_integer(trained));
  return chart;
}

std::string tasks_section(const CompareResults& results) {
  if (results.tasks.empty()) return "";
  const auto table = [](const char* key, const Table& shown) {
    return fmt::format("<div data-table=\"{}\"><div class=\"scroll\"><pre>{}</pre></div></div>\n", key,
                       escape_markup(to_text(shown)));
  };
  std::string html =
      "<section aria-labelledby=\"tasks-heading\">\n<h2 id=\"tasks-heading\">How far do the models answer?</h2>\n"
      "<p>Each model was trained on synthetic tasks in short sequences, and then asked in longer ones. The distance is "
      "the number of tokens from the information to the answer.</p>\n" +
      table("tasks", reach_table(results));
  if (const std::optional<LineChart> map = map_chart(results)) {
    html += fmt::format("<h3>{}</h3>\n<figure class=\"lines\">\n{}<figcaption>{}</figcaption>\n</figure>\n",
                        escape_markup(map->title), draw(*map, page_theme(), false), escape_markup(map->subtitle));
  }
  for (const TaskResults& task : results.tasks) {
    const LineChart chart = accuracy_chart(task);
    html += fmt::format(
        "<h3>{}: {}</h3>\n<figure class=\"lines\">\n{}<figcaption>Accuracy {}. Bands show 95 % intervals. {}."
        "</figcaption>\n</figure>\n",
        escape_markup(chart.title), escape_markup(task.task.meaning), draw(chart, page_theme(), false),
        where_of(TableAxis(task)), escape_markup(upper_first(chart.description)));
    html += fmt::format("<details><summary>The same numbers as a table</summary>{}</details>\n",
                        table(("task " + escape_markup(title_of(task))).c_str(), accuracy_table(task)));
  }
  return html + "</section>\n";
}

int64_t longest_of_tasks(const CompareResults& results) {
  int64_t longest = 0;
  for (const TaskResults& task : results.tasks) longest = std::max(longest, longest_of(task));
  return longest;
}

}  // namespace alibi::report
