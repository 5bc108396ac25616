#include "bench/attention_report.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/format.h"

namespace alibi::bench {
namespace {

std::string seconds_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string percent(double share) { return fmt::format("{:.{}f} %", 100 * share, share < 0.0995 ? 1 : 0); }

/// "2^-24", "0", "0.001"
std::string tolerance_text(float tolerance) {
  int exponent = 0;
  if (tolerance > 0 && std::frexp(tolerance, &exponent) == 0.5f) return fmt::format("2^{}", exponent - 1);
  return fmt::format("{:g}", tolerance);
}

}  // namespace

std::string table_head(Pass pass, DType dtype) {
  const char* titles[] = {"forward", "forward and backward", "forward and backward"};
  std::string head = fmt::format("\n{}, {}\n{:>9}  {:>9}  {:>9}  {:>9}  ", titles[static_cast<size_t>(pass)],
                                 name_of(dtype), pass == Pass::decode ? "context" : "length", "tolerance", "time",
                                 pass == Pass::decode ? "warm" : "per token");
  if (pass == Pass::decode) return head + fmt::format("{:>7}  {:>9}  {:>8}\n", "GB/s", "of peak", "visited");
  head += fmt::format("{:>9}  {:>9}  {:>8}  {:>10}", "GFLOP/s", "of peak", "visited", "memory");
  return head + (pass == Pass::backward ? fmt::format("  {:>9}\n", "ratio") : "\n");
}

std::string table_row(const AttentionPoint& point, double ceiling) {
  std::string row = fmt::format("{:>9}  {:>9}  ", point.length, tolerance_text(point.tolerance));
  if (point.left_out()) {
    return row + fmt::format("skipped: one call would take about {}\n", core::format_duration(point.expected_seconds));
  }
  row += fmt::format("{:>9}  ", seconds_text(point.seconds));
  if (point.pass == Pass::decode) {
    const double rate = point.bytes_read / point.seconds;
    return row + fmt::format("{:>9}  {:>7.1f}  {:>9}  {:>8}\n", seconds_text(point.warm_seconds), rate / 1e9,
                             percent(rate / ceiling), percent(point.visited));
  }
  row += fmt::format("{:>9}  {:>9.0f}  {:>9}  {:>8}  {:>10}",
                     seconds_text(point.seconds / static_cast<double>(point.length)), point.rate() / 1e9,
                     percent(point.rate() / ceiling), percent(point.visited), core::format_bytes(point.peak_bytes));
  if (point.pass == Pass::backward) row += fmt::format("  {:>9.2f}", point.seconds / point.forward_seconds);
  return row + "\n";
}

std::string memory_table(const std::vector<AttentionPoint>& points) {
  std::string rows;
  for (const AttentionPoint& point : points) {
    if (point.pass != Pass::backward || point.tolerance > 0 || point.left_out()) continue;
    rows += fmt::format("{:>9}  {:>9}  {:>10}  {:>9}  {:>10}\n", point.length, name_of(point.dtype),
                        core::format_bytes(point.peak_bytes), core::format_bytes(point.peak_bytes / point.length),
                        core::format_bytes(point.peak_resident));
  }
  if (rows.empty()) return rows;
  return fmt::format(
             "\nmemory of forward and backward, without inputs and outputs\n{:>9}  {:>9}  {:>10}  {:>9}  {:>10}\n",
             "length", "type", "peak", "per token", "resident") +
         rows;
}

std::string head_table(const std::vector<std::vector<double>>& visited_by_head, int64_t length) {
  std::string table = fmt::format("\nblocks visited by layer and head, length {}\n", length);
  for (size_t layer = 0; layer < visited_by_head.size(); ++layer) {
    table += fmt::format("{:>9}  ", layer);
    for (const double share : visited_by_head[layer]) table += fmt::format("{:>8}", percent(share));
    table += "\n";
  }
  return table;
}

nlohmann::ordered_json to_json(const AttentionPoint& point) {
  nlohmann::ordered_json json = {{"pass", name_of(point.pass)},
                                 {"dtype", name_of(point.dtype)},
                                 {"length", point.length},
                                 {"tolerance", point.tolerance}};
  if (point.left_out()) {
    json["left_out"] = true;
    json["expected_seconds"] = point.expected_seconds;
    return json;
  }
  json["seconds"] = point.seconds;
  json["best_seconds"] = point.best_seconds;
  json["runs"] = point.runs;
  json["flops"] = point.flops;
  json["visited"] = point.visited;
  json["peak_bytes"] = point.peak_bytes;
  if (point.pass == Pass::decode) {
    json["warm_seconds"] = point.warm_seconds;
    json["bytes_read"] = point.bytes_read;
    return json;
  }
  json["peak_resident_bytes"] = point.peak_resident;
  json["matmul_alongside"] = point.ceiling;
  if (point.pass == Pass::backward) json["forward_seconds"] = point.forward_seconds;
  if (point.visited_each.size() > 1) json["visited_by_layer"] = point.visited_each;
  return json;
}

nlohmann::ordered_json to_json(const MatmulCeilings& ceilings) {
  return {{"dtype", name_of(ceilings.dtype)},          {"matmul", ceilings.best()},
          {"matmul_row_major", ceilings.plain.best()}, {"matmul_row_major_size", ceilings.plain.size()},
          {"matmul_packed", ceilings.packed.best()},   {"matmul_packed_size", ceilings.packed.size()}};
}

}  // namespace alibi::bench
