#include "alibi/evaluate_stream.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "alibi/context.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/memory.h"
#include "evaluate/checks.h"
#include "model/position.h"

namespace alibi {

double StreamEvaluation::nll() const { return nll_sum / static_cast<double>(tokens); }
double StreamEvaluation::perplexity() const { return std::exp(nll()); }
double StreamEvaluation::bits_per_byte(int64_t bytes) const {
  return nll_sum / std::numbers::ln2 / static_cast<double>(bytes);
}
double StreamEvaluation::tokens_per_second() const { return static_cast<double>(read) / seconds; }

namespace {

/// The targets of a piece of the stream that starts at `begin`. Targets outside the segments are -1 and are not scored.
Tensor targets_of(std::span<const int32_t> piece, int64_t begin, const std::vector<Segment>& segments) {
  Tensor targets = Tensor::empty({1, static_cast<int64_t>(piece.size())}, DType::int32);
  int32_t* to = targets.data<int32_t>();
  std::fill_n(to, piece.size(), -1);
  const int64_t end = begin + std::ssize(piece);
  for (const Segment& segment : segments) {
    const int64_t first = std::max(segment.begin, begin), last = std::min(segment.end, end);
    if (first < last) std::copy(piece.begin() + (first - begin), piece.begin() + (last - begin), to + (first - begin));
  }
  return targets;
}

}  // namespace

StreamEvaluation evaluate_stream(const LanguageModel& model, std::span<const int32_t> tokens,
                                 const EvaluateStreamOptions& options) {
  constexpr int64_t first_span = 256, tokens_together = 2048;
  const TransformerConfig& config = model.config().transformer;
  const auto all = static_cast<int64_t>(tokens.size());
  check(config.attention.causal,
        "[evaluate] the model is an encoder, expected a causal transformer, which has a perplexity");
  check(all > 0, "[evaluate] the stream has no tokens to score, expected at least one");
  const std::vector<Segment> segments = evaluation::segments_to_score(options.segments, all);
  const int64_t count = segments.back().end;
  const std::optional<int64_t> end_of_model = model::end_of_positions(config);
  check(!end_of_model || count <= *end_of_model,
        "[evaluate] {} positions end at {}, but the text has {} tokens, so the model cannot read it in one pass; "
        "score it in windows of at most {} tokens",
        name_of(config.position), end_of_model.value_or(0), count, end_of_model.value_or(0));
  const int32_t first_input = model.tokenizer().end_of_text();

  StreamEvaluation result;
  result.segment_nll.assign(segments.size(), 0.0);
  Context context(model, options.context);
  Tensor ids = Tensor::empty({1, tokens_together}, DType::int32);
  const core::KeepMemory keep;
  auto last = core::Clock::now();
  while (result.read < count) {
    const int64_t begin = result.read;
    if (result.spans.empty() || begin == result.spans.back().end) {
      result.spans.push_back({begin, std::min(count, begin == 0 ? first_span : 2 * begin)});
    }
    StreamSpan& span = result.spans.back();
    const int64_t length = std::min(span.end - begin, tokens_together);
    ids.data<int32_t>()[0] = begin == 0 ? first_input : tokens[static_cast<size_t>(begin - 1)];
    const auto known = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(length));
    std::copy_n(known.begin(), length - 1, ids.data<int32_t>() + 1);
    const Tensor targets = targets_of(known, begin, segments);
    const std::vector<float> nll = model.nll(Tensor::view(ids.raw(), {1, length}, DType::int32), targets, context);
    for (size_t i = 0; i < nll.size(); ++i)
      evaluation::check_finite("evaluate", nll[i], "loss of token", begin + static_cast<int64_t>(i));
    span.nll_sum = std::accumulate(nll.begin(), nll.end(), span.nll_sum);
    for (size_t s = 0; s < segments.size(); ++s) {
      const int64_t first = std::max(segments[s].begin, begin), end = std::min(segments[s].end, begin + length);
      if (first >= end) continue;
      result.segment_nll[s] =
          std::accumulate(nll.begin() + (first - begin), nll.begin() + (end - begin), result.segment_nll[s]);
      result.tokens += end - first;
    }
    result.cache_bytes = std::max(result.cache_bytes, context.bytes());
    result.read += length;
    const auto now = core::Clock::now();
    span.seconds += core::seconds_between(last, now);
    last = now;
    if (options.on_progress) options.on_progress(result.read, count);
  }
  for (const StreamSpan& span : result.spans) {
    result.nll_sum += span.nll_sum;
    result.seconds += span.seconds;
  }
  result.certificate = context.certificate();
  return result;
}

}  // namespace alibi
