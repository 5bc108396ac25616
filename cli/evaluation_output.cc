#include "evaluation_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "common.h"
#include "evaluate/evaluate_over.h"
#include "report/json.h"
#include "report/progress.h"

namespace alibi::cli {

Evaluation evaluate_with_progress(const LanguageModel& model, std::span<const int32_t> tokens, EvaluateOptions options,
                                  ranks::Group* group) {
  report::Progress progress(stderr, lines_without_terminal());
  progress.begin(fmt::format("evaluate at {}", options.length));
  options.on_progress = [&](int64_t scored, int64_t all) {
    progress.update(static_cast<double>(scored) / static_cast<double>(all));
  };
  return evaluation::evaluate_over(group, model, tokens, options);
}

int64_t scored_bytes(const Evaluation& evaluation, int64_t bytes, int64_t tokens) {
  const double share = static_cast<double>(evaluation.tokens) / static_cast<double>(tokens);
  return std::max<int64_t>(1, std::llround(share * static_cast<double>(bytes)));
}

StreamEvaluation evaluate_stream_with_progress(const LanguageModel& model, std::span<const int32_t> tokens,
                                               const ContextOptions& context, const std::vector<Segment>& segments) {
  report::Progress progress(stderr, lines_without_terminal());
  progress.begin("evaluate in one pass");
  EvaluateStreamOptions options;
  options.context = context;
  options.segments = segments;
  options.on_progress = [&](int64_t scored, int64_t all) {
    progress.update(static_cast<double>(scored) / static_cast<double>(all));
  };
  return evaluate_stream(model, tokens, options);
}

nlohmann::ordered_json stream_json(const StreamEvaluation& stream, int64_t bytes) {
  auto spans = nlohmann::ordered_json::array();
  for (const StreamSpan& span : stream.spans) {
    const auto tokens = static_cast<double>(span.end - span.begin);
    spans.push_back({{"begin", span.begin},
                     {"end", span.end},
                     {"nll", span.nll_sum / tokens},
                     {"tokens_per_second", tokens / span.seconds}});
  }
  return {{"tokens", stream.tokens},
          {"nll", stream.nll()},
          {"perplexity", stream.perplexity()},
          {"bits_per_byte", stream.bits_per_byte(bytes)},
          {"tokens_per_second", stream.tokens_per_second()},
          {"cache_bytes", stream.cache_bytes},
          {"spans", spans}};
}

nlohmann::ordered_json evaluation_json(const Evaluation& evaluation, int64_t bytes) {
  EvaluationPoint point;
  point.length = evaluation.length;
  point.stride = evaluation.stride;
  point.tokens = evaluation.tokens;
  point.nll = evaluation.nll();
  point.perplexity = evaluation.perplexity();
  point.bits_per_byte = evaluation.bits_per_byte(bytes);
  point.tokens_per_second = evaluation.tokens_per_second();
  return report::to_json(point);
}

}  // namespace alibi::cli
