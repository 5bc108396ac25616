#include "train/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "core/check.h"
#include "core/format.h"
#include "core/parallel.h"
#include "formats/json.h"
#include "formats/tensorboard.h"
#include "report/line_chart.h"

namespace alibi::training {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLinesFile = "metrics.jsonl";

/// Seconds since 1970.
double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

formats::OrderedJson line_of(const TrainStatus& status) {
  formats::OrderedJson line = {{"step", status.step},
                               {"tokens", status.tokens},
                               {"loss", status.loss},
                               {"perplexity", std::exp(status.loss)},
                               {"learning_rate", status.learning_rate},
                               {"gradient_norm", status.gradient_norm},
                               {"tokens_per_second", status.tokens_per_second},
                               {"seconds", status.seconds},
                               {"memory_bytes", status.memory_bytes}};
  if (status.valid_loss) {
    line["valid_loss"] = *status.valid_loss;
    line["valid_perplexity"] = std::exp(*status.valid_loss);
  }
  line["time"] = wall_time();
  return line;
}

/// The TensorBoard record with the content of a line of metrics.jsonl.
std::string record_of(const formats::OrderedJson& line) {
  struct Column {
    const char* key;
    const char* tag;
    double unit;
  };
  constexpr Column columns[] = {{"loss", "train/loss", 1},
                                {"perplexity", "train/perplexity", 1},
                                {"learning_rate", "train/learning_rate", 1},
                                {"gradient_norm", "train/gradient_norm", 1},
                                {"tokens_per_second", "speed/tokens_per_second", 1},
                                {"memory_bytes", "memory/GiB", 1 << 30},
                                {"valid_loss", "valid/loss", 1},
                                {"valid_perplexity", "valid/perplexity", 1}};
  std::vector<formats::TensorboardScalar> scalars;
  for (const Column& column : columns) {
    const auto found = line.find(column.key);
    if (found != line.end() && found->is_number()) {
      scalars.push_back({column.tag, found->get<double>() / column.unit});
    }
  }
  return formats::tensorboard_scalars(line["time"].get<double>(), line["step"].get<int64_t>(), scalars);
}

/// The lines of updates 1 to `step`. If the process was killed, its last line may be incomplete; that line and all
/// lines after it are dropped.
std::vector<formats::OrderedJson> lines_until(const fs::path& path, int64_t step) {
  std::vector<formats::OrderedJson> lines;
  if (!core::path_exists(path)) return lines;
  const std::string content = core::read_file(path);
  int64_t last = 0;
  for (size_t begin = 0, end; (end = content.find('\n', begin)) != std::string::npos; begin = end + 1) {
    formats::OrderedJson line =
        formats::OrderedJson::parse(content.begin() + static_cast<std::ptrdiff_t>(begin),
                                    content.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) break;
    if (!line.contains("time") || !line["time"].is_number()) break;
    const int64_t number = line["step"].get<int64_t>();
    if (number <= last || number > step) break;
    last = number;
    lines.push_back(std::move(line));
  }
  return lines;
}

/// Removes older event files of alibi, because TensorBoard would also show them.
fs::path new_tensorboard_file(const fs::path& folder, double time) {
  core::make_folder(folder);
  std::vector<fs::path> old;
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("events.out.tfevents.") && name.find(".alibi.") != std::string::npos)
      old.push_back(entry->path());
  }
  for (const fs::path& path : old) fs::remove(path, ignored);
  return folder / fmt::format("events.out.tfevents.{:010}.alibi.{}", static_cast<int64_t>(time), ::getpid());
}

constexpr int64_t kPoints = 400;  // a chart cannot show more points

report::Series training(const TrainState& state, int64_t batch_tokens) {
  report::Series series{"training", {}, "", ""};
  const auto steps = static_cast<int64_t>(state.loss.size());
  const int64_t grain = core::ceil_div(steps, kPoints);
  for (int64_t begin = 0; begin < steps; begin += grain) {
    const int64_t end = std::min(steps, begin + grain);
    double sum = 0;
    for (int64_t step = begin; step < end; ++step) sum += static_cast<double>(state.loss[static_cast<size_t>(step)]);
    const double tokens = static_cast<double>(end * batch_tokens), mean = sum / static_cast<double>(end - begin);
    series.points.push_back({tokens, mean, fmt::format("{} tokens: {:.4f}", core::format_count(tokens), mean)});
  }
  return series;
}

report::Series held_out(const TrainState& state, int64_t batch_tokens) {
  report::Series series{"held-out", {}, "", ""};
  for (const TrainEvaluation& evaluation : state.evaluations) {
    const auto tokens = static_cast<double>(evaluation.step * batch_tokens);
    series.points.push_back(
        {tokens, evaluation.loss, fmt::format("{} tokens: {:.4f}", core::format_count(tokens), evaluation.loss)});
  }
  return series;
}

}  // namespace

Metrics::Metrics(const fs::path& model_folder, int64_t step) : folder_(model_folder) { open(step); }

void Metrics::open(int64_t step) {
  const fs::path path = folder_ / kLinesFile;
  const std::vector<formats::OrderedJson> lines = lines_until(path, step);
  core::write_file(path, [&](const auto& append) {
    for (const formats::OrderedJson& line : lines) append(line.dump() + "\n");
  });
  const double now = wall_time();
  const fs::path events = new_tensorboard_file(folder_ / "tensorboard", now);
  core::write_file(events, [&](const auto& append) {
    append(formats::tensorboard_file_header(lines.empty() ? now : lines.front()["time"].get<double>()));
    for (const formats::OrderedJson& line : lines) append(record_of(line));
  });
  lines_ = std::make_unique<core::AppendFile>(path);
  tensorboard_ = std::make_unique<core::AppendFile>(events);
}

void Metrics::add(const TrainStatus& status) {
  const formats::OrderedJson line = line_of(status);
  lines_->append(line.dump() + "\n");
  tensorboard_->append(record_of(line));
}

void Metrics::write_again(int64_t step) {
  core::write_file(folder_ / kLinesFile, lines_->content());
  open(step);
}

void Metrics::sync() {
  lines_->sync();
  tensorboard_->sync();
}

std::string loss_figure(const TrainState& state, int64_t batch_tokens) {
  report::LineChart chart;
  chart.id = "loss";
  chart.title = "Training loss";
  chart.subtitle =
      fmt::format("{} updates of {} tokens", core::format_integer(state.step), core::format_integer(batch_tokens));
  chart.description =
      "Mean loss of the training text and of the held-out text against the number of tokens seen in training.";
  chart.markers = false;
  for (report::Series series : {training(state, batch_tokens), held_out(state, batch_tokens)}) {
    if (series.points.empty()) continue;
    series.end_value = fmt::format("{:.3f}", series.points.back().y);
    chart.series.push_back(std::move(series));
  }
  double low = std::numeric_limits<double>::infinity(), high = -low, most = 0, least = low;
  for (const report::Series& series : chart.series) {
    for (const report::ChartPoint& point : series.points) {
      low = std::min(low, point.y);
      high = std::max(high, point.y);
      least = std::min(least, point.x);
      most = std::max(most, point.x);
    }
  }
  chart.y = report::linear_axis(low, high);
  chart.x = report::logarithmic_axis(least, std::max(most, 1.01 * least));
  chart.x.high = std::max(most, 1.01 * chart.x.low);
  std::erase_if(chart.x.ticks, [&](const report::Tick& tick) { return tick.value > chart.x.high; });
  chart.x_label = "Tokens seen in training (log scale)";
  chart.y_label = "Loss in nats per token (lower is better)";
  return report::draw(chart, report::print_theme(), true);
}

}  // namespace alibi::training
