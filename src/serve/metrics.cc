#include "serve/metrics.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace alibi::serve {

void Histogram::add(double seconds) {
  for (size_t i = 0; i < bounds_.size(); ++i) counts_[i] += seconds <= bounds_[i] ? 1 : 0;
  ++count_;
  sum_ += seconds;
}

void Histogram::write(std::string& to, const std::string& name, const std::string& labels) const {
  const std::string more = labels.empty() ? "" : labels + ",";
  for (size_t i = 0; i < bounds_.size(); ++i) {
    write_value(to, name + "_bucket", fmt::format("{}le=\"{}\"", more, bounds_[i]), static_cast<double>(counts_[i]));
  }
  write_value(to, name + "_bucket", more + "le=\"+Inf\"", static_cast<double>(count_));
  write_value(to, name + "_sum", labels, sum_);
  write_value(to, name + "_count", labels, static_cast<double>(count_));
}

void Metrics::count_request(const std::string& path, int status, double seconds) {
  const std::lock_guard lock(mutex_);
  ++requests_[{path, status}];
  seconds_[path].add(seconds);
}

void Metrics::add_first_token(const std::string& model, double seconds) {
  const std::lock_guard lock(mutex_);
  first_token_[model].add(seconds);
}

void Metrics::add_between_tokens(const std::string& model, double seconds) {
  const std::lock_guard lock(mutex_);
  between_tokens_[model].add(seconds);
}

void Metrics::write(std::string& to) const {
  const std::lock_guard lock(mutex_);
  write_header(to, "alibi_http_requests_total", "counter", "Answered requests by path and status.");
  for (const auto& [key, count] : requests_) {
    write_value(to, "alibi_http_requests_total", fmt::format("{},status=\"{}\"", label("path", key.first), key.second),
                static_cast<double>(count));
  }
  const auto histograms = [&](const auto& all, const std::string& name, const char* key, const char* help) {
    write_header(to, name, "histogram", help);
    for (const auto& [value, histogram] : all) histogram.write(to, name, label(key, value));
  };
  histograms(seconds_, "alibi_http_request_seconds", "path", "Seconds from the request to the end of the answer.");
  histograms(first_token_, "alibi_first_token_seconds", "model", "Seconds from the request to its first token.");
  histograms(between_tokens_, "alibi_between_tokens_seconds", "model", "Seconds between two tokens of a text.");
}

void write_header(std::string& to, const std::string& name, const char* type, const char* help) {
  fmt::format_to(std::back_inserter(to), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void write_value(std::string& to, const std::string& name, const std::string& labels, double value) {
  fmt::format_to(std::back_inserter(to), "{}{}{}{} {}\n", name, labels.empty() ? "" : "{", labels,
                 labels.empty() ? "" : "}", value);
}

std::string label(const std::string& key, const std::string& value) {
  std::string escaped;
  for (const char c : value) {
    if (c == '\\' || c == '"') escaped += '\\';
    if (c == '\n') {
      escaped += "\\n";
    } else {
      escaped += c;
    }
  }
  return fmt::format("{}=\"{}\"", key, escaped);
}

void write_process(std::string& to) {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  statm >> size >> resident;
  std::error_code error;
  int64_t descriptors = 0;
  for (auto at = std::filesystem::directory_iterator("/proc/self/fd", error); at != std::filesystem::end(at);
       at.increment(error)) {
    ++descriptors;
  }
  int64_t threads = 0;
  for (auto at = std::filesystem::directory_iterator("/proc/self/task", error); at != std::filesystem::end(at);
       at.increment(error)) {
    ++threads;
  }
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  write_header(to, "process_resident_memory_bytes", "gauge", "Resident memory.");
  write_value(to, "process_resident_memory_bytes", "", static_cast<double>(resident * ::sysconf(_SC_PAGESIZE)));
  write_header(to, "process_open_fds", "gauge", "Open file descriptors.");
  write_value(to, "process_open_fds", "", static_cast<double>(descriptors));
  write_header(to, "process_threads", "gauge", "Threads.");
  write_value(to, "process_threads", "", static_cast<double>(threads));
  write_header(to, "process_cpu_seconds_total", "counter", "Processor time, of all threads.");
  write_value(to, "process_cpu_seconds_total", "", seconds(used.ru_utime) + seconds(used.ru_stime));
}

}  // namespace alibi::serve
