#include "bench/train_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "core/format.h"

namespace alibi::bench {
namespace {

std::string method_of(const TrainPoint& point) {
  const std::string name = name_of(point.position);
  return point.all_keys ? name + ", all keys" : name;
}

}  // namespace

std::string train_table_head(const std::string& name, const LanguageModelConfig& config,
                             const TrainBenchSettings& settings) {
  const TransformerConfig& t = config.transformer;
  return fmt::format("\n{}, {}: {} layers of {}, {} heads, vocabulary {}, {} tokens a step{}\n", name,
                     name_of(settings.precision), t.layers, t.d_model, t.heads, core::format_integer(config.vocab_size),
                     core::format_integer(settings.batch_tokens), settings.recompute ? ", recomputing" : "") +
         fmt::format("{:>8}  {:<15}  {:>8}  {:>9}  {:>7}  {:>9}  {:>6}  {:>9}  {:>8}  {:>8}\n", "length", "position",
                     "tokens/s", "step", "x first", "products", "share", "of oneDNN", "memory", "resident");
}

std::string train_table_row(const TrainPoint& point, double ceiling) {
  const std::string row = fmt::format("{:>8}  {:<15}  ", point.length, method_of(point));
  if (point.too_large) {
    return row + fmt::format("left out: it would take {} of memory\n", core::format_bytes(point.planned_bytes));
  }
  if (point.expected_seconds > 0) {
    return row + fmt::format("left out: one step would take about {}\n", core::format_duration(point.expected_seconds));
  }
  const std::string of_first = point.of_first > 0 ? fmt::format("{:.3f}", point.of_first) : "";
  return row + fmt::format("{:>8}  {:>6.0f} ms  {:>7}  {:>6.0f} ms  {:>4.0f} %  {:>7.1f} %  {:>8}  {:>8}\n",
                           core::format_count(point.tokens_per_second()), 1e3 * point.seconds, of_first,
                           1e3 * point.matmul_seconds, 100 * point.matmul_share(), 100 * point.rate() / ceiling,
                           core::format_bytes(point.peak_bytes), core::format_bytes(point.peak_resident));
}

std::string products_table(const TrainPoint& point, double ceiling) {
  std::string text =
      fmt::format("\nproducts of {}, length {}, {}\n", point.model, point.length, method_of(point)) +
      fmt::format("{:<14}  {:<7}  {:>21}  {:<11}  {:>5}  {:>7}  {:>9}  {:>9}  {:>7}  {:>9}\n", "parameter", "pass",
                  "rows x columns x inner", "operands", "times", "GFLOP/s", "of oneDNN", "time", "of step", "in step");
  const auto row = [&](std::string_view parameter, std::string_view pass, std::string_view shape,
                       std::string_view operands, int64_t times, double flops, double seconds, double step_seconds) {
    const double rate = flops / seconds;
    text += fmt::format(
        "{:<14}  {:<7}  {:>22}  {:<11}  {:>5}  {:>7.0f}  {:>7.1f} %  {:>6.1f} ms  {:>5.1f} %  {:>6.1f} ms\n", parameter,
        pass, shape, operands, times, rate / 1e9, 100 * rate / ceiling, 1e3 * seconds, 100 * seconds / point.seconds,
        1e3 * step_seconds);
  };
  ProductPoint all;
  int64_t times = 0;
  double flops = 0;
  for (const ProductPoint& product : point.products) {
    const nn::Product& p = product.kind.product;
    row(product.kind.parameter, product.kind.pass, fmt::format("{} x {} x {}", p.m, p.n, p.k), product.kind.operands(),
        product.kind.times, product.flops(), product.seconds, product.step_seconds);
    times += product.kind.times;
    flops += product.flops();
    all.seconds += product.seconds;
    all.step_seconds += product.step_seconds;
  }
  row("all", "", "", "", times, flops, all.seconds, all.step_seconds);
  return text;
}

std::string replay_table(const TrainPoint& point) {
  std::string text;
  for (const Replay& replayed : point.replays) {
    text += fmt::format("\nreplay of {}, length {}, {}: {} threads, step {:.1f} ms, {:.1f} % of ideal\n", point.model,
                        point.length, method_of(point), replayed.threads, 1e3 * replayed.seconds,
                        100 * replayed.share_of_ideal()) +
            fmt::format("{:<66}  {:>6}  {:>11}  {:>9}  {:>9}  {:>9}\n", "section", "times", "tasks", "work", "replayed",
                        "lost");
    const auto row = [&](const std::string& name, int64_t sections, const std::string& tasks, double work,
                         double seconds) {
      text += fmt::format("{:<66}  {:>6}  {:>11}  {:>6.1f} ms  {:>6.2f} ms  {:>7.2f} %\n", name, sections, tasks,
                          1e3 * work, 1e3 * seconds, 100 * (seconds - work / replayed.threads) / replayed.seconds);
    };
    constexpr double worth_a_row = 0.002;
    ReplayedPart rest{.name = "the rest"};
    for (const ReplayedPart& part : replayed.parts) {
      if (replayed.lost(part) < worth_a_row * replayed.seconds) {
        rest.sections += part.sections;
        rest.work += part.work;
        rest.seconds += part.seconds;
        continue;
      }
      const std::string tasks = part.most_tasks == 0 ? "serial"
                                : part.least_tasks == part.most_tasks
                                    ? fmt::format("{}", part.most_tasks)
                                    : fmt::format("{}-{}", part.least_tasks, part.most_tasks);
      row(part.name, part.sections, tasks, part.work, part.seconds);
    }
    row(rest.name, rest.sections, "", rest.work, rest.seconds);
  }
  return text;
}

namespace {

nlohmann::ordered_json to_json(const Replay& replayed) {
  nlohmann::ordered_json json = {{"threads", replayed.threads},
                                 {"work_seconds", replayed.work},
                                 {"seconds", replayed.seconds},
                                 {"share_of_ideal", replayed.share_of_ideal()},
                                 {"sections", nlohmann::ordered_json::array()}};
  for (const ReplayedPart& part : replayed.parts) {
    json["sections"].push_back({{"name", part.name},
                                {"times", part.sections},
                                {"least_tasks", part.least_tasks},
                                {"most_tasks", part.most_tasks},
                                {"work_seconds", part.work},
                                {"seconds", part.seconds},
                                {"lost_seconds", replayed.lost(part)}});
  }
  return json;
}

nlohmann::ordered_json to_json(const ProductPoint& product, const TrainPoint& point, double ceiling) {
  const nn::Product& p = product.kind.product;
  return {{"parameter", product.kind.parameter},
          {"pass", product.kind.pass},
          {"rows", p.m},
          {"columns", p.n},
          {"inner", p.k},
          {"operands", product.kind.operands()},
          {"transposed", {p.a.transposed, p.b.transposed}},
          {"types", {name_of(p.a.dtype), name_of(p.b.dtype), name_of(p.c.dtype)}},
          {"times", product.kind.times},
          {"flops", product.flops()},
          {"seconds", product.seconds},
          {"seconds_in_step", product.step_seconds},
          {"rate", product.rate()},
          {"ceiling_share", product.rate() / ceiling},
          {"step_share", product.seconds / point.seconds}};
}

}  // namespace

nlohmann::ordered_json to_json(const TrainPoint& point, double ceiling) {
  nlohmann::ordered_json json = {{"model", point.model},
                                 {"layers", point.layers},
                                 {"d_model", point.d_model},
                                 {"heads", point.heads},
                                 {"vocab_size", point.vocab_size},
                                 {"position", name_of(point.position)},
                                 {"all_keys", point.all_keys},
                                 {"precision", name_of(point.precision)},
                                 {"recompute", point.recompute},
                                 {"length", point.length},
                                 {"tokens", point.tokens},
                                 {"parameters", point.parameters},
                                 {"model_flops", point.model_flops}};
  if (point.left_out()) {
    json["left_out"] = true;
    if (point.expected_seconds > 0) json["expected_seconds"] = point.expected_seconds;
    if (point.too_large) json["expected_bytes"] = point.planned_bytes;
    return json;
  }
  json["seconds"] = point.seconds;
  json["best_seconds"] = point.best_seconds;
  if (point.of_first > 0) json["of_first"] = point.of_first;
  json["runs"] = point.runs;
  json["tokens_per_second"] = point.tokens_per_second();
  json["matmul_seconds"] = point.matmul_seconds;
  json["matmul_flops"] = point.matmul_flops;
  json["matmul_share"] = point.matmul_share();
  json["ceiling_share"] = point.rate() / ceiling;
  json["matmul_alongside"] = point.ceiling;
  json["peak_bytes"] = point.peak_bytes;
  json["resident_before_bytes"] = point.resident_before;
  json["peak_resident_bytes"] = point.peak_resident;
  json["loss"] = point.loss;
  for (const ProductPoint& product : point.products) json["products"].push_back(to_json(product, point, ceiling));
  for (const Replay& replayed : point.replays) json["replays"].push_back(to_json(replayed));
  return json;
}

}  // namespace alibi::bench
