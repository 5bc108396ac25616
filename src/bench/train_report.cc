#include "bench/train_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

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
                     name_of(settings.precision), t.layers, t.d_model, t.attention.heads,
                     core::format_integer(config.vocab_size), core::format_integer(settings.batch_tokens),
                     settings.recompute ? ", recomputing" : "") +
         fmt::format("{:>8}  {:<15}  {:>8}  {:>9}  {:>7}  {:>9}  {:>6}  {:>9}  {:>8}  {:>8}\n", "length", "position",
                     "tokens/s", "step", "ratio", "products", "share", "of peak", "memory", "resident");
}

std::string train_table_row(const TrainPoint& point, double ceiling) {
  const std::string row = fmt::format("{:>8}  {:<15}  ", point.length, method_of(point));
  if (point.too_large) {
    return row + fmt::format("skipped: it would need {} of memory\n", core::format_bytes(point.planned_bytes));
  }
  if (point.expected_seconds > 0) {
    return row + fmt::format("skipped: one step would take about {}\n", core::format_duration(point.expected_seconds));
  }
  const std::string of_first = point.of_first > 0 ? fmt::format("{:.3f}", point.of_first) : "";
  return row + fmt::format("{:>8}  {:>6.0f} ms  {:>7}  {:>6.0f} ms  {:>4.0f} %  {:>7.1f} %  {:>8}  {:>8}\n",
                           core::format_count(point.tokens_per_second()), 1e3 * point.seconds, of_first,
                           1e3 * point.matmul_seconds, 100 * point.matmul_share(), 100 * point.rate() / ceiling,
                           core::format_bytes(point.peak_bytes), core::format_bytes(point.peak_resident));
}

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
  return json;
}

}  // namespace alibi::bench
