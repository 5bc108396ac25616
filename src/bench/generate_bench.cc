#include "bench/generate_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "attention/decode/evicted_keys.h"
#include "attention/decode/kv_cache_norms.h"
#include "attention/decode/kv_cache_state.h"
#include "bench/timing.h"
#include "core/check.h"
#include "core/format.h"
#include "core/memory.h"
#include "core/random.h"
#include "model/context_state.h"

namespace alibi::bench {
namespace {

/// Number of prompt tokens whose keys and values fill all contexts.
constexpr int64_t read_once = 512;
/// Room for tokens after a context. At most 1000 tokens are timed.
constexpr int64_t room = 2048;
/// Number of tokens in a chunk of a prompt.
constexpr int64_t chunk = 512;

int64_t bytes_of_weights(const LanguageModel& model) {
  int64_t bytes = 0;
  for (const Parameter* parameter : model.parameters()) {
    if (parameter->value.axes() < 2) continue;  // gains and biases are negligible compared with the matrices
    bytes += static_cast<int64_t>(parameter->operand().bytes());
  }
  return bytes;
}

}  // namespace

GenerateBench::GenerateBench(const LanguageModel& model, const GenerateBenchSettings& settings)
    : model_(model),
      settings_(settings),
      memory_(settings.memory_bytes),
      ids_(Tensor::empty({1, chunk}, DType::int32)),
      weight_bytes_(bytes_of_weights(model)) {
  const core::Random random(settings.seed);
  for (int64_t i = 0; i < chunk; ++i) {
    ids_.data<int32_t>()[i] =
        static_cast<int32_t>(random.below(static_cast<uint64_t>(i), static_cast<uint64_t>(model.config().vocab_size)));
  }
}
GenerateBench::~GenerateBench() = default;

/// Returns a context at position `context` that holds the last `held` keys.
Context GenerateBench::filled(int64_t context) {
  // The memory limit is never reached. It makes the context record the bound of the weight of evicted keys.
  const ContextOptions options{.cached = settings_.cached, .memory = int64_t{1} << 50};
  Context result(model_, options);
  const int64_t read = std::min(read_once, context);
  model_.next_logits(Tensor::view(ids_.raw(), {1, read}, DType::int32), result);
  core::StateOf<Context>& state = core::state_of(result);
  const int64_t held = std::min(context, std::max(settings_.held, read_once));
  check_usage(core::state_of(state.caches.front()).decays.heads() == 0,
              "[bench generate] the model has {} positions, whose keys cannot be repeated, expected no gates",
              name_of(model_.config().transformer.position));
  for (KvCache& cache : state.caches) {
    const Tensor k = cache.keys().clone(), v = cache.values().clone();
    KvCache all(1, cache.kv_heads(), cache.head_dim(), cache.dtype());
    all.append(k, v);
    kernels::leave_gap(all, (context - held) / kernels::cache_block * kernels::cache_block);
    all.reserve(context + room);
    while (all.length() < context) {
      const int64_t rows = std::min(read, context - all.length());
      all.append(k.slice(1, 0, rows), v.slice(1, 0, rows));
    }
    cache = std::move(all);
  }
  state.session.position = context;
  return result;
}

/// Returns the seconds to the first token after a prompt of this length, without repeated keys.
double GenerateBench::read_prompt(int64_t tokens) {
  Tensor ids = Tensor::empty({1, tokens}, DType::int32);
  for (int64_t i = 0; i < tokens; ++i) ids.data<int32_t>()[i] = ids_.data<int32_t>()[i % chunk];
  Context context(model_, {.cached = settings_.cached});
  return seconds_of([&] { model_.next_logits(ids, context); });
}

std::vector<GeneratePoint> GenerateBench::measure(const std::vector<int64_t>& contexts,
                                                  const std::function<void(double, const std::string&)>& on_progress) {
  const core::KeepMemory keep;
  const auto count = static_cast<double>(contexts.size());
  std::vector<GeneratePoint> points;
  std::vector<Context> filled_to;
  std::vector<Work> works;
  const Tensor one = Tensor::view(ids_.raw(), {1, 1}, DType::int32);
  for (const int64_t context : contexts) {
    on_progress(static_cast<double>(points.size()) / count / 3,
                fmt::format("filling {}", core::format_integer(context)));
    filled_to.push_back(filled(context));
    points.push_back({.context = context, .held = context - core::state_of(filled_to.back()).caches.front().begin(0)});
  }
  for (Context& context : filled_to) {
    model_.next_logits(one, context);  // allocates the memory that later tokens need
    works.push_back({.run = [&] { model_.next_logits(one, context); }, .prepare = [&] { memory_.read(); }});
  }
  on_progress(1.0 / 3, "writing");
  run_in_turns(works, {.seconds = settings_.seconds, .min_runs = 5, .max_runs = 1000});
  // A chunk of a prompt is timed after each context. Whole prompts are timed if they do not take too long.
  double estimated = 0;
  int64_t estimated_to = 0;
  double rate_before = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    GeneratePoint& point = points[i];
    Context& context = filled_to[i];
    on_progress((1 + (1 + static_cast<double>(i)) / count) / 3 * 0.99,
                fmt::format("reading a chunk after {}", core::format_integer(point.context)));
    point.token_seconds = median(works[i].seconds);
    point.best_seconds = least(works[i].seconds);
    point.tokens = static_cast<int64_t>(works[i].seconds.size());
    point.weight_rate = static_cast<double>(weight_bytes_) / point.best_seconds;
    point.cache_bytes = context.bytes();
    point.evicted_share = context.certificate().worst;
    double seconds = std::numeric_limits<double>::infinity();
    for (int time = 0; time < 2; ++time) {  // the first time also takes the memory that later chunks use
      seconds = std::min(seconds, seconds_of([&] { model_.next_logits(ids_, context); }));
    }
    point.prompt_rate = static_cast<double>(chunk) / seconds;
    // Between two contexts, the cost of a token is interpolated.
    const double cost = rate_before > 0 ? (1 / rate_before + 1 / point.prompt_rate) / 2 : 1 / point.prompt_rate;
    estimated += static_cast<double>(point.context - estimated_to) * cost;
    estimated_to = point.context;
    rate_before = point.prompt_rate;
    point.first_is_read = estimated <= settings_.longest;
    point.first_seconds = point.first_is_read ? read_prompt(point.context) : estimated;
  }
  return points;
}

std::string generate_table_head() {
  return fmt::format("\n{:>9}  {:>8}  {:>9}  {:>9}  {:>9}  {:>10}  {:>11}  {:>10}  {:>9}\n", "context", "held",
                     "ms/token", "tokens/s", "weights", "memory", "prompt", "first", "evicted");
}

std::string generate_table_row(const GeneratePoint& point, double bandwidth) {
  return fmt::format("{:>9}  {:>8}  {:>9.2f}  {:>9.1f}  {:>7.0f} %  {:>10}  {:>7} t/s  {:>9}{}  {:>9.1g}\n",
                     point.context, point.held, point.token_seconds * 1e3, 1 / point.token_seconds,
                     100 * point.weight_rate / bandwidth, core::format_bytes(point.cache_bytes),
                     core::format_count(point.prompt_rate), core::format_duration(point.first_seconds),
                     point.first_is_read ? " " : "*", point.evicted_share);
}

nlohmann::ordered_json to_json(const GeneratePoint& point, double bandwidth) {
  return {{"context", point.context},
          {"held", point.held},
          {"token_seconds", point.token_seconds},
          {"best_token_seconds", point.best_seconds},
          {"tokens", point.tokens},
          {"tokens_per_second", 1 / point.token_seconds},
          {"weight_bytes_per_second", point.weight_rate},
          {"share_of_bandwidth", point.weight_rate / bandwidth},
          {"cache_bytes", point.cache_bytes},
          {"prompt_tokens_per_second", point.prompt_rate},
          {"first_token_seconds", point.first_seconds},
          {"first_token_estimated", !point.first_is_read},
          {"evicted_share", point.evicted_share}};
}

}  // namespace alibi::bench
