// Counters and histograms, in the text format of Prometheus.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace alibi::serve {

/// Counts of durations in buckets.
class Histogram {
 public:
  void add(double seconds);
  /// Appends the series with this name and these labels ("model=\"m\"", or none).
  void write(std::string& to, const std::string& name, const std::string& labels) const;

 private:
  static constexpr std::array<double, 16> bounds_ = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                                     0.5,   1,      2.5,   5,    10,    30,   60,  300};
  std::array<int64_t, bounds_.size()> counts_{};
  int64_t count_ = 0;
  double sum_ = 0;
};

/// What the server counts itself. Threads may share it.
class Metrics {
 public:
  void count_request(const std::string& path, int status, double seconds);
  void add_first_token(const std::string& model, double seconds);
  void add_between_tokens(const std::string& model, double seconds);
  void write(std::string& to) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, int64_t> requests_;
  std::map<std::string, Histogram> seconds_, first_token_, between_tokens_;
};

/// Appends "# HELP" and "# TYPE" lines.
void write_header(std::string& to, const std::string& name, const char* type, const char* help);
/// Appends a sample.
void write_value(std::string& to, const std::string& name, const std::string& labels, double value);
/// key="value", with the value escaped.
std::string label(const std::string& key, const std::string& value);

/// Resident memory in bytes, open file descriptors, threads and processor seconds of this process.
void write_process(std::string& to);

}  // namespace alibi::serve
