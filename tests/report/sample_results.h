// A comparison as a small run gives it, made up from formulas: for tests of tables and figures.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "alibi/results.h"
#include "report/summarize.h"

namespace alibi::testing {

struct SampleMethod {
  std::string name;
  double base;    ///< perplexity at the training length
  double growth;  ///< power of the length with which it grows past it
};

/// Perplexities at 1 to 16 times 128; "learned" cannot run past 128.
inline RunResults sample_run(const SampleMethod& spec, int index) {
  RunResults method;
  method.method = spec.name;
  method.train_length = 128;
  method.seed = 1;
  method.parameters = 1'180'000 + 16'384 * index;
  method.train_tokens = 2'097'152;
  method.train_tokens_per_second = 61000.0 - 4100 * index;
  method.train_seconds = static_cast<double>(method.train_tokens) / method.train_tokens_per_second;
  method.train_peak_bytes = (212 + 9 * index) << 20;
  method.eval_peak_bytes = (96 + 3 * index) << 20;
  for (int i = 1; i <= 128; ++i) {
    const double wiggle = 0.03 * std::sin(0.9 * i + index) / std::sqrt(i);
    method.loss.push_back(
        {4 * i, 16384 * i, std::log(spec.base) + 3.4 * std::pow(i, -0.75) + wiggle - 0.06 + 0.01 * index});
  }
  for (const int64_t length : {128, 160, 192, 256, 384, 512, 768, 1024, 2048}) {
    EvaluationPoint point;
    point.length = point.stride = length;
    const double multiple = static_cast<double>(length) / 128;
    if (spec.name == "learned" && length > 128) {
      point.gap = "[model] 'learned' has positions up to 128; it cannot read 160 tokens";
    } else {
      point.tokens = 262'144;
      point.perplexity = spec.base * std::pow(multiple, spec.growth) * (1 - 0.03 * (1 - 1 / multiple));
      point.nll = std::log(point.perplexity);
      point.bits_per_byte = point.nll / std::log(2.0);
      point.tokens_per_second = 240000.0 / (1 + 0.12 * multiple) - 5000 * index;
    }
    method.evaluations.push_back(point);
  }
  for (int64_t context = 16; context <= (spec.name == "learned" ? 128 : 2048); context *= 2) {
    const double past = context <= 128 ? 0 : std::log(static_cast<double>(context) / 128);
    method.context.push_back({context, std::log(spec.base) - 0.2 + spec.growth * past, {}, {}});
  }
  method.per_position_length = spec.name == "learned" ? 128 : 1024;
  for (int64_t i = 0; i < method.per_position_length; ++i) {
    const double past = i < 128 ? 0 : std::log(static_cast<double>(i) / 128);
    method.per_position_nll.push_back(std::log(spec.base) - 0.1 + 1.9 * std::pow(static_cast<double>(i + 1), -0.6) +
                                      1.4 * spec.growth * past + 0.02 * std::sin(2.3 * static_cast<double>(i) + index));
  }
  method.sample_prompt = "template <class T>\nclass ";
  for (int i = 0; i < 24; ++i)
    method.sample += "  basic_string& __append(const _CharT* __s, size_type __n); // <&> \"q\"\n";
  method.sample +=
      "caf\xC3\xA9 \xFF\xFE \x1b[31mred\x00"
      "\xE2\x80\xAE <script>alert(1)</script>";
  method.model_folder = "compare/models/" + spec.name;
  return method;
}

inline CompareResults sample_results(const std::vector<SampleMethod>& methods = {{"alibi", 5.751, 0.002},
                                                                                 {"sinusoidal", 5.824, 0.34},
                                                                                 {"rotary", 5.702, 0.17},
                                                                                 {"t5", 5.733, 0.012},
                                                                                 {"learned", 5.861, 0},
                                                                                 {"none", 6.114, 0.06}}) {
  CompareResults results;
  results.train_length = 128;
  results.seed = 1;
  results.threads = 2;
  results.preset = "tiny";
  results.parameters = 1'180'000;
  results.train_bytes = 9'812'345;
  results.valid_bytes = 1'048'576;
  results.train_files = 712;
  results.valid_files = 80;
  results.tokenizer = "bpe";
  results.vocab_size = 8192;
  results.corpus_name = "C++ standard library headers";
  results.command = "alibi compare --methods alibi,sinusoidal,rotary,t5 --train-length 128 --seed 1";
  results.machine = "Intel Xeon (2 cores, amx)";
  results.version = "0.1.0";
  results.started = "2025-01-01T12:00:00Z";
  results.seconds = 291;
  results.settings = {
      {"Learning rate", "0.002, cosine to 0.0002"}, {"Batch", "32 windows of 128 tokens"}, {"Layers", "4"}};
  std::vector<RunResults> runs;
  for (size_t i = 0; i < methods.size(); ++i) runs.push_back(sample_run(methods[i], static_cast<int>(i)));
  results.methods = report::methods_of(runs, results.held_out);
  results.runs_planned = results.runs_done();
  return results;
}

}  // namespace alibi::testing
