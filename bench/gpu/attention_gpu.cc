// Times attention with ALiBi on a GPU with and without the skip rule, and prints the ratios of one run.
//
//   attention_gpu [--json FILE] [--lengths 512,2048] [--head-dims 64,128] [--heads N] [--tokens N] [--dtype bf16]
//                 [--seconds S]
//
// Attention is causal, with inputs from N(0, 1), heads * head_dim = 2048 unless --heads is given, and batches of at
// least --tokens tokens. Each shape is compared with float64 before it is timed. FLOP/s count all of the visible half,
// whether or not it is skipped. Then cached decoding is timed: one query for each sequence of such a batch, with GB/s
// of all its keys and values.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/attention.h"
#include "alibi/error.h"
#include "alibi/kv_cache.h"
#include "alibi/version.h"
#include "core/check.h"
#include "core/cuda/stream.h"
#include "core/random.h"

namespace {

using namespace alibi;

struct Options {
  std::string json;
  std::vector<int64_t> lengths = {512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};
  std::vector<int64_t> head_dims = {64, 128};
  int64_t heads = 0;  ///< 0 selects 2048 / head_dim
  int64_t tokens = 16384;
  DType dtype = DType::bfloat16;
  double seconds = 0.4;  ///< time for each point
};

std::vector<int64_t> numbers(std::string_view text) {
  std::vector<int64_t> result;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    check_usage(error == std::errc() && value > 0, "[attention_gpu] '{}' is not a list of numbers", text);
    result.push_back(value);
    at = next < end && *next == ',' ? next + 1 : next;
    check_usage(next == end || *next == ',', "[attention_gpu] '{}' is not a list of numbers", text);
  }
  return result;
}

Options options_of(int count, char** arguments) {
  Options result;
  for (int i = 1; i < count; i += 2) {
    const std::string_view name = arguments[i];
    check_usage(i + 1 < count, "[attention_gpu] {} needs a value", name);
    const std::string_view value = arguments[i + 1];
    if (name == "--json") {
      result.json = value;
    } else if (name == "--lengths") {
      result.lengths = numbers(value);
    } else if (name == "--head-dims") {
      result.head_dims = numbers(value);
    } else if (name == "--heads") {
      result.heads = numbers(value).at(0);
    } else if (name == "--tokens") {
      result.tokens = numbers(value).at(0);
    } else if (name == "--seconds") {
      result.seconds = std::stod(std::string(value));
    } else if (name == "--dtype" && (value == "bf16" || value == "f16")) {
      result.dtype = value == "bf16" ? DType::bfloat16 : DType::float16;
    } else {
      fail_usage("[attention_gpu] the option {} {} is unknown; the options are listed at the top of the source", name,
                 value);
    }
  }
  return result;
}

/// Numbers from a pool that is made once, because making them takes longer than using them.
Tensor normal(Shape shape, DType dtype, uint64_t seed) {
  constexpr int64_t pool_size = int64_t{1} << 22;
  static const std::vector<float> pool = [] {
    std::vector<float> values(static_cast<size_t>(pool_size));
    for (size_t i = 0; i < values.size(); ++i) values[i] = core::Random(1).normal(i);
    return values;
  }();
  Tensor result = Tensor::empty(std::move(shape));
  float* const values = result.data<float>();
  // Copies pieces of odd length from odd places, so that no two rows are equal.
  for (int64_t i = 0; i < result.elements();) {
    const auto piece = static_cast<uint64_t>(i / 99991);
    const auto from = static_cast<int64_t>(core::Random(seed).below(piece, static_cast<uint64_t>(pool_size - 99991)));
    const int64_t count = std::min<int64_t>(99991, result.elements() - i);
    std::copy_n(pool.data() + from, count, values + i);
    i += count;
  }
  return result.to(dtype);
}

struct Inputs {
  Inputs(int64_t batch, int64_t length, int64_t heads, int64_t head_dim, DType dtype) {
    const Shape shape = {batch, length, heads, head_dim};
    uint64_t seed = 1;
    for (Tensor* tensor : {&q, &k, &v, &dout}) *tensor = normal(shape, dtype, seed++);
  }
  void to(Device device) {
    for (Tensor* tensor : {&q, &k, &v, &dout}) *tensor = tensor->to(device);
    for (Tensor* tensor : {&out, &dq, &dk, &dv}) *tensor = Tensor::empty(q.shape(), q.dtype(), device);
  }
  void forward(const AttentionOptions& options) { attention(q, k, v, options, out, &state); }
  void backward(const AttentionOptions& options) { attention_backward(dout, q, k, v, out, state, options, dq, dk, dv); }

  Tensor q, k, v, dout, out, dq, dk, dv;
  AttentionState state;
};

double worst(const Tensor& found, const std::vector<double>& expected) {
  const std::vector<float> values = found.to_floats();
  double error = 0, size = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double diff = std::abs(static_cast<double>(values[i]) - expected[i]);
    if (!(diff <= error)) error = diff;
    size = std::max(size, std::abs(expected[i]));
  }
  return error / size;
}

/// Relative errors of out, dq, dk and dv on a small shape. Throws Error if one is larger than rounding explains.
std::vector<double> compare_with_float64(int64_t head_dim, DType dtype, float tolerance) {
  Inputs inputs(2, 700, 4, head_dim, dtype);
  AttentionOptions options;
  options.alibi_slopes = slopes(4);
  options.tolerance = tolerance;
  std::vector<double> out;
  attention_reference(inputs.q, inputs.k, inputs.v, options, out);
  AttentionReferenceGradients gradients;
  attention_backward_reference(inputs.dout, inputs.q, inputs.k, inputs.v, options, gradients);
  inputs.to(Device::cuda);
  inputs.forward(options);
  inputs.backward(options);
  const std::vector<double> errors = {worst(inputs.out, out), worst(inputs.dq, gradients.dq),
                                      worst(inputs.dk, gradients.dk), worst(inputs.dv, gradients.dv)};
  for (const double error : errors) {
    check(error <= 0.02, "[attention_gpu] head_dim {}, tolerance {}: errors of out, dq, dk, dv against float64: {}",
          head_dim, tolerance, fmt::join(errors, ", "));
  }
  return errors;
}

struct Event {
  Event() { core::cuda::check_cuda("attention_gpu", cudaEventCreate(&event)); }
  ~Event() { cudaEventDestroy(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  void record() { core::cuda::check_cuda("attention_gpu", cudaEventRecord(event, nullptr)); }
  cudaEvent_t event = nullptr;
};

/// Milliseconds of one run, measured by the GPU's clock.
double milliseconds_of(const std::function<void()>& work) {
  static Event begin, end;
  begin.record();
  work();
  end.record();
  core::cuda::check_cuda("attention_gpu", cudaEventSynchronize(end.event));
  float result = 0;
  core::cuda::check_cuda("attention_gpu", cudaEventElapsedTime(&result, begin.event, end.event));
  return static_cast<double>(result);
}

struct Timed {
  std::function<void()> run;
  std::vector<double> milliseconds = {};

  double median() {
    const auto middle = milliseconds.begin() + static_cast<std::ptrdiff_t>(milliseconds.size() / 2);
    std::nth_element(milliseconds.begin(), middle, milliseconds.end());
    return *middle;
  }
};

/// Times the works alternately, so that a slow phase of the machine affects all of them.
void time_in_turns(std::vector<Timed>& works, double seconds) {
  for (Timed& work : works) {
    for (int i = 0; i < 3; ++i) work.run();
  }
  double spent = 0;
  const double all = 1e3 * seconds * static_cast<double>(works.size());
  for (int round = 0; round < 7 || (round < 400 && spent < all); ++round) {
    for (Timed& work : works) {
      work.milliseconds.push_back(milliseconds_of(work.run));
      spent += work.milliseconds.back();
    }
  }
}

/// Times one query per sequence over caches of this length. Returns a line of output and adds the points for --json.
std::string measure_decoding(const Options& options, int64_t head_dim, int64_t length) {
  const int64_t heads = options.heads > 0 ? options.heads : std::max<int64_t>(2048 / head_dim, 1);
  const int64_t batch = (options.tokens + length - 1) / length;
  const Tensor k = normal({batch, length, heads, head_dim}, options.dtype, 1).to(Device::cuda);
  const Tensor v = normal({batch, length, heads, head_dim}, options.dtype, 2).to(Device::cuda);
  const Tensor q = normal({batch, 1, heads, head_dim}, options.dtype, 3).to(Device::cuda);
  KvCache cache(batch, heads, head_dim, options.dtype, Device::cuda);
  cache.append(k, v);
  Tensor out = Tensor::empty(q.shape(), q.dtype(), Device::cuda);
  AttentionOptions settings[2];
  AttentionState state;
  std::vector<Timed> works;
  for (int i = 0; i < 2; ++i) {
    settings[i].alibi_slopes = slopes(static_cast<int>(heads));
    settings[i].tolerance = i == 0 ? 0 : 0x1p-11f;
    attention_decode(q, cache, settings[i], out, &state);
    const double difference = worst(out, [&] {
      const std::vector<float> whole = attention(q, cache.keys(), cache.values(), settings[0]).to_floats();
      return std::vector<double>(whole.begin(), whole.end());
    }());
    check(difference <= 0.02, "[attention_gpu] decoding differs from attention by {}", difference);
    works.push_back({[&, &setting = settings[i]] { attention_decode(q, cache, setting, out); }});
  }
  const double visited =
      static_cast<double>(count_blocks(state).blocks_visited) / static_cast<double>(count_blocks(state).blocks_total);
  time_in_turns(works, options.seconds);
  const double ms[] = {works[0].median(), works[1].median()};
  const double gigabytes = static_cast<double>(k.bytes() + v.bytes()) * 1e-9;
  fmt::print(
      "{:>8} {:>6} {:>5} {:>6} | decoding {:>8.4g} ms {:>6.0f} GB/s, skipping {:>8.4g} ms {:>6.2f} times | {:.3f}\n",
      head_dim, length, batch, heads, ms[0], 1e3 * gigabytes / ms[0], ms[1], ms[0] / ms[1], visited);
  std::fflush(stdout);
  std::string points;
  for (int i = 0; i < 2; ++i) {
    points += fmt::format(
        ",\n    {{\"pass\": \"decode\", \"tolerance\": {:g}, \"head_dim\": {}, \"length\": {}, \"batch\": {}, "
        "\"heads\": {}, "
        "\"ms\": {:.6g}, \"gbps\": {:.5g}, \"visited\": {:.5g}, \"runs\": {}}}",
        settings[i].tolerance, head_dim, length, batch, heads, ms[i], 1e3 * gigabytes / ms[i], i == 0 ? 1.0 : visited,
        works[static_cast<size_t>(i)].milliseconds.size());
  }
  return points;
}

void measure(const Options& options) {
  cudaDeviceProp device{};
  core::cuda::check_cuda("attention_gpu", cudaGetDeviceProperties(&device, 0));
  const char* const type = options.dtype == DType::bfloat16 ? "bf16" : "f16";
  constexpr float tolerances[] = {0, 0x1p-11f};
  std::string points;
  const auto save = [&] {  // saved after every shape, because the process may be stopped at any time
    if (options.json.empty()) return;
    std::FILE* const file = std::fopen(options.json.c_str(), "w");
    check(file != nullptr, "[attention_gpu] cannot write {}", options.json);
    fmt::print(file,
               "{{\n  \"alibi\": \"{}\",\n  \"device\": \"{}\",\n  \"dtype\": \"{}\",\n  \"points\": [{}\n  ]\n}}\n",
               version, device.name, type, points);
    check(std::fclose(file) == 0, "[attention_gpu] cannot write {}", options.json);
  };
  fmt::print("alibi {} on {}, {}, causal, at least {} tokens a call\n", version, device.name, type, options.tokens);
  for (const int64_t head_dim : options.head_dims) {
    for (const float tolerance : tolerances) {
      const std::vector<double> errors = compare_with_float64(head_dim, options.dtype, tolerance);
      fmt::print("head_dim {}, tolerance {:g}: relative errors of out, dq, dk, dv {:.2g}\n", head_dim, tolerance,
                 fmt::join(errors, ", "));
    }
  }
  fmt::print("{:>8} {:>6} {:>5} {:>6} | {:>10} {:>7} {:>10} {:>7} | {:>10} {:>7} {:>10} {:>7} | {:>7}\n", "head_dim",
             "length", "batch", "heads", "forward ms", "TFLOP/s", "skipping", "times", "f + b ms", "TFLOP/s",
             "skipping", "times", "visited");
  for (const int64_t head_dim : options.head_dims) {
    for (const int64_t length : options.lengths) {
      const int64_t heads = options.heads > 0 ? options.heads : std::max<int64_t>(2048 / head_dim, 1);
      const int64_t batch = (options.tokens + length - 1) / length;
      Inputs inputs(batch, length, heads, head_dim, options.dtype);
      inputs.to(Device::cuda);
      AttentionOptions settings[2];
      std::vector<Timed> works;
      double visited = 1;
      for (int i = 0; i < 2; ++i) {
        settings[i].alibi_slopes = slopes(static_cast<int>(heads));
        settings[i].tolerance = tolerances[i];
        inputs.forward(settings[i]);
        visited = static_cast<double>(count_blocks(inputs.state).blocks_visited) /
                  static_cast<double>(std::max<int64_t>(count_blocks(inputs.state).blocks_total, 1));
        works.push_back({[&inputs, &setting = settings[i]] {
          attention(inputs.q, inputs.k, inputs.v, setting, inputs.out, nullptr);
        }});
        works.push_back({[&inputs, &setting = settings[i]] {
          inputs.forward(setting);
          inputs.backward(setting);
        }});
      }
      time_in_turns(works, options.seconds);
      const auto rows = static_cast<double>(length);
      const double flops = 4 * rows * (rows + 1) / 2 * static_cast<double>(batch * heads * head_dim);
      const double ms[] = {works[0].median(), works[1].median(), works[2].median(), works[3].median()};
      fmt::print(
          "{:>8} {:>6} {:>5} {:>6} | {:>10.4g} {:>7.1f} {:>10.4g} {:>7.2f} | {:>10.4g} {:>7.1f} {:>10.4g} {:>7.2f} "
          "| {:>7.3f}\n",
          head_dim, length, batch, heads, ms[0], flops / ms[0] * 1e-9, ms[2], ms[0] / ms[2], ms[1],
          3.5 * flops / ms[1] * 1e-9, ms[3], ms[1] / ms[3], visited);
      std::fflush(stdout);
      for (size_t i = 0; i < works.size(); ++i) {
        points += fmt::format(
            "{}\n    {{\"pass\": \"{}\", \"tolerance\": {:g}, \"head_dim\": {}, \"length\": {}, \"batch\": {}, "
            "\"heads\": {}, "
            "\"ms\": {:.6g}, \"tflops\": {:.5g}, \"visited\": {:.5g}, \"runs\": {}}}",
            points.empty() ? "" : ",", i % 2 == 0 ? "forward" : "forward + backward", tolerances[i / 2], head_dim,
            length, batch, heads, ms[i], (i % 2 == 0 ? 1 : 3.5) * flops / ms[i] * 1e-9, i < 2 ? 1.0 : visited,
            works[i].milliseconds.size());
      }
      save();
    }
  }
  for (const int64_t head_dim : options.head_dims) {
    for (const int64_t length : options.lengths) {
      points += measure_decoding(options, head_dim, length);
      save();
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  try {
    measure(options_of(count, arguments));
    return 0;
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
