#include "alibi/evaluate.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <optional>

#include "core/check.h"
#include "core/clock.h"
#include "core/memory.h"
#include "evaluate/checks.h"
#include "evaluate/evaluate_over.h"
#include "evaluate/masking.h"

namespace alibi {

double Evaluation::nll() const { return nll_sum / static_cast<double>(tokens); }
double Evaluation::perplexity() const { return std::exp(nll()); }
double Evaluation::bits_per_byte(int64_t bytes) const {
  return nll_sum / std::numbers::ln2 / static_cast<double>(bytes);
}
double Evaluation::tokens_per_second() const { return static_cast<double>(tokens) / seconds; }

namespace {

/// The model reads the inputs of the targets [begin, end). The targets [first_scored, end) are scored.
struct Window {
  int64_t begin, first_scored, end;
  size_t segment;
  int64_t length() const { return end - begin; }
};

/// Each target of the segment is scored by exactly one window. A window scores `stride` new targets after up to length
/// - stride targets of context. The windows at the start of the stream that would not be full all begin at 0 and are
/// replaced by the longest of them, in which their targets see the same inputs.
void cut_windows(const Segment& segment, size_t index, int64_t length, int64_t stride, std::vector<Window>& windows) {
  const int64_t context = length - stride;
  int64_t scored = segment.begin;
  if (scored < context) {
    const int64_t at_start = (context - scored) / stride + 1;  // windows that begin at 0
    const int64_t end = std::min(segment.end, scored + at_start * stride);
    windows.push_back({0, scored, end, index});
    scored = end;
  }
  while (scored < segment.end) {
    const int64_t end = std::min(segment.end, scored + stride);
    windows.push_back({scored - context, scored, end, index});
    scored = end;
  }
}

std::vector<Window> cut_windows(const std::vector<Segment>& segments, int64_t length, int64_t stride) {
  std::vector<Window> windows;
  for (size_t i = 0; i < segments.size(); ++i) cut_windows(segments[i], i, length, stride, windows);
  // Windows of the same length run through the model together. Those of a single segment are already adjacent.
  if (segments.size() > 1) {
    std::stable_sort(windows.begin(), windows.end(),
                     [](const Window& a, const Window& b) { return a.length() > b.length(); });
  }
  return windows;
}

/// The input and the target at each position of the stream.
class Asked {
 public:
  Asked(const LanguageModel& model, std::span<const int32_t> tokens, const EvaluateOptions& options)
      : tokens_(tokens), before_(model.tokenizer().end_of_text()) {
    const std::optional<int32_t> mask = model.config().mask_token();
    if (!mask) return;
    check_usage(options.mask_rate > 0 && options.mask_rate <= 1, "[evaluate] mask_rate is {}, expected above 0 to 1",
                options.mask_rate);
    masking_.emplace(options.mask_rate, core::Random(options.mask_seed, 0x3a5c), *mask);
  }

  evaluation::Masking::Token at(int64_t place) const {
    const int32_t token = tokens_[static_cast<size_t>(place)];
    if (masking_) return (*masking_)(token, static_cast<uint64_t>(place));
    return {place == 0 ? before_ : tokens_[static_cast<size_t>(place - 1)], token};
  }
  int64_t in(const Segment& segment) const {
    if (!masking_) return segment.size();
    int64_t count = 0;
    for (int64_t t = segment.begin; t < segment.end; ++t) count += masking_->asks(static_cast<uint64_t>(t)) ? 1 : 0;
    return count;
  }

 private:
  std::span<const int32_t> tokens_;
  int32_t before_;
  std::optional<evaluation::Masking> masking_;  // empty for a decoder, which predicts every token
};

/// Windows that run through the model together, and the losses of their targets.
struct WindowBatch {
  size_t begin, end;
  Tensor targets;  // int32 [windows, length]; -1: not scored
  std::vector<float> nll;
};

/// The batches, which depend only on the windows.
std::vector<WindowBatch> cut_batches(const std::vector<Window>& windows, int64_t batch_tokens) {
  std::vector<WindowBatch> batches;
  for (size_t at = 0; at < windows.size(); at = batches.back().end) {
    const int64_t length = windows[at].length();
    const size_t most = static_cast<size_t>(std::max<int64_t>(1, batch_tokens / length));
    size_t end = at + 1;
    while (end < windows.size() && end - at < most && windows[end].length() == length) ++end;
    batches.push_back({at, end, {}, {}});
  }
  return batches;
}

/// Fills the targets, and computes their losses if this rank is to.
void score(WindowBatch& batch, const std::vector<Window>& windows, const Asked& asked, const LanguageModel& model,
           bool computes) {
  const Shape shape{static_cast<int64_t>(batch.end - batch.begin), windows[batch.begin].length()};
  Tensor ids = Tensor::empty(shape, DType::int32);
  batch.targets = Tensor::empty(shape, DType::int32);
  int32_t* id = ids.data<int32_t>();
  int32_t* target = batch.targets.data<int32_t>();
  for (size_t w = batch.begin; w < batch.end; ++w) {
    for (int64_t t = windows[w].begin; t < windows[w].end; ++t) {
      const auto [input, asked_for] = asked.at(t);
      *id++ = input;
      *target++ = t < windows[w].first_scored ? -1 : asked_for;
    }
  }
  batch.nll.resize(static_cast<size_t>(ids.elements()));
  if (computes) batch.nll = model.nll(ids, batch.targets);
}

}  // namespace

std::vector<Segment> evaluation::spread(const std::vector<int64_t>& sizes, int64_t first, int64_t end) {
  const int64_t taken = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  const int64_t room = end - first - taken, count = std::ssize(sizes);
  std::vector<Segment> segments;
  int64_t before = first;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = before + (2 * i + 1) * room / (2 * count);
    const int64_t size = sizes[static_cast<size_t>(i)];
    segments.push_back({begin, begin + size});
    before += size;
  }
  return segments;
}

std::vector<Segment> evaluation::spread_blocks(int64_t stream, int64_t wanted, int64_t longest) {
  std::vector<int64_t> sizes;
  for (int64_t left = std::min(wanted, stream); left > 0; left -= sizes.back()) {
    sizes.push_back(std::min(left, longest));
  }
  return spread(sizes, 0, stream);
}

Evaluation evaluation::evaluate_over(ranks::Group* group, const LanguageModel& model, std::span<const int32_t> tokens,
                                     const EvaluateOptions& options) {
  const int64_t length = options.length;
  const int64_t stride = options.stride == 0 ? length : options.stride;
  check_usage(length >= 1, "[evaluate] the length is {}, expected at least 1", length);
  check_usage(stride >= 1 && stride <= length, "[evaluate] the stride is {}, expected 1 to the length, {}", stride,
              length);
  check(!tokens.empty(), "[evaluate] the stream has no tokens to score, expected at least one");
  const std::vector<Segment> segments =
      evaluation::segments_to_score(options.segments, static_cast<int64_t>(tokens.size()));
  const Asked asked(model, tokens, options);
  const std::vector<Window> windows = cut_windows(segments, length, stride);
  int64_t count = 0, longest = 0;
  for (const Segment& segment : segments) count += asked.in(segment);
  check(count > 0,
        "[evaluate] no token out of {} is masked at a mask rate of {}; score more text or raise the mask rate",
        tokens.size(), options.mask_rate);
  for (const Window& window : windows) longest = std::max(longest, window.length());

  Evaluation result;
  result.length = length;
  result.stride = stride;
  result.position_nll.assign(static_cast<size_t>(longest), 0.0);
  result.position_tokens.assign(static_cast<size_t>(longest), 0);
  result.segment_nll.assign(segments.size(), 0.0);
  const core::KeepMemory keep;
  const auto start = core::Clock::now();
  std::vector<WindowBatch> batches = cut_batches(windows, options.batch_tokens);
  const auto ranks = static_cast<size_t>(group == nullptr ? 1 : group->size());
  const auto here = static_cast<size_t>(group == nullptr ? 0 : group->rank());
  // Each rank computes one of some batches. Then all ranks add up the losses of all in the order of one process.
  for (size_t first = 0; first < batches.size(); first += ranks) {
    const std::span<WindowBatch> together = std::span(batches).subspan(first, std::min(ranks, batches.size() - first));
    for (size_t i = 0; i < together.size(); ++i) score(together[i], windows, asked, model, i == here);
    if (group != nullptr) {
      std::vector<std::span<std::byte>> parts(ranks);
      for (size_t i = 0; i < together.size(); ++i) parts[i] = ranks::bytes_of(together[i].nll);
      ranks::all_gather(*group, ranks::Tag::results, parts);
    }
    for (WindowBatch& batch : together) {
      const float* value = batch.nll.data();
      const int32_t* target = batch.targets.data<int32_t>();
      for (size_t w = batch.begin; w < batch.end; ++w) {
        for (int64_t t = windows[w].begin; t < windows[w].end; ++t, ++value) {
          if (*target++ < 0) continue;
          evaluation::check_finite("evaluate", *value, "loss of token", t);
          const size_t position = static_cast<size_t>(t - windows[w].begin);
          result.nll_sum += static_cast<double>(*value);
          result.segment_nll[windows[w].segment] += static_cast<double>(*value);
          result.position_nll[position] += static_cast<double>(*value);
          ++result.position_tokens[position];
          ++result.tokens;
        }
      }
      batch = {batch.begin, batch.end, {}, {}};
      if (options.on_progress) options.on_progress(result.tokens, count);
    }
  }
  result.seconds = core::seconds_since(start);
  check(result.tokens == count,
        "[evaluate] {} tokens were scored, expected {}; this is a bug in the division into windows", result.tokens,
        count);
  return result;
}

Evaluation evaluate(const LanguageModel& model, std::span<const int32_t> tokens, const EvaluateOptions& options) {
  return evaluation::evaluate_over(nullptr, model, tokens, options);
}

}  // namespace alibi
