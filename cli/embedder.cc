#include "embedder.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/format.h"
#include "ranks.h"
#include "stop_signals.h"

namespace alibi::cli {
namespace {

constexpr size_t kMaxItems = 1024;
constexpr int64_t kMaxBytes = 1 << 20;

int64_t bytes_of(const EmbedItem& item) {
  return std::accumulate(item.chunks.begin(), item.chunks.end(), std::ssize(item.text) + 1,
                         [](int64_t sum, const std::string& chunk) { return sum + std::ssize(chunk); });
}

/// The end of the group of items that begins at `first`. Groups are computed and written as a whole.
size_t group_end(const std::vector<EmbedItem>& items, size_t first) {
  int64_t bytes = 0;
  size_t end = first;
  do bytes += bytes_of(items[end++]);
  while (end < items.size() && end - first < kMaxItems && bytes < kMaxBytes);
  return end;
}

}  // namespace

size_t whole_groups(const std::vector<EmbedItem>& items, size_t count) {
  size_t first = 0;
  while (first < items.size()) {
    const size_t end = group_end(items, first);
    if (end > count) break;
    first = end;
  }
  return first;
}

Work work_of(const EmbedCommand& options, const LanguageModel& model, const EmbedItem& item) {
  Work work{.item = &item, .input = {}, .spans = {}};
  if (options.late_chunking) {
    ChunkedInput chunked = chunked_input(model, item.chunks);
    work.input = std::move(chunked.input);
    work.spans = std::move(chunked.spans);
    return work;
  }
  work.input = encoder_input(model, item.text);
  if (options.max_tokens > 0 && std::ssize(work.input.ids) > options.max_tokens) {
    work.input = encoder_input(model, item.text, options.max_tokens);
    work.was_cut = true;
  }
  return work;
}

void warn_of_cut(const EmbedCommand& options, int64_t count) {
  if (count == 0) return;
  report_warning(
      fmt::format("{} texts were cut to {} tokens (--max-tokens)", core::format_integer(count), options.max_tokens));
}

Embedder::Embedder(const EmbedCommand& options, const LanguageModel& model, const std::vector<EmbedItem>& items,
                   bool is_shown)
    : options_(options),
      model_(model),
      items_(items),
      progress_(stderr, is_shown ? lines_without_terminal() : report::ProgressOptions()) {
  for (const EmbedItem& item : items) bytes_ += bytes_of(item);
  progress_.begin("embed");
}

/// A signal of any rank stops all.
void Embedder::stop_if_asked() {
  int signal = StopSignals::received();
  if (world() != nullptr) {
    const std::vector<double> all = ranks::all_gather(*world(), signal);
    signal = static_cast<int>(*std::max_element(all.begin(), all.end()));
  }
  if (signal == 0) return;
  progress_.clear();
  throw Interrupted{signal, options_.out.empty() ? 128 + signal : code_of_stopped(signal)};
}

Tensor Embedder::on_first_rank(Tensor rows, std::span<const Work> works, int rank) const {
  if (rank == 0 || (!is_first_rank() && world()->rank() != rank)) return rows;
  ranks::Transfers transfers;
  if (is_first_rank()) {
    const int64_t count = std::accumulate(works.begin(), works.end(), int64_t{0},
                                          [](int64_t sum, const Work& work) { return sum + work.rows(); });
    rows = Tensor::empty({count, int64_t{model_.config().transformer.d_model}});
  }
  const std::span<std::byte> bytes(static_cast<std::byte*>(rows.raw()), rows.bytes());
  transfers.push_back(is_first_rank() ? world()->receive(rank, ranks::Tag::results, bytes)
                                      : world()->send(0, ranks::Tag::results, bytes));
  ranks::wait(transfers);
  return rows;
}

void Embedder::run(size_t first, const std::function<void(std::span<const Work> works, const Tensor& rows)>& use) {
  int64_t before = 0;
  for (size_t i = 0; i < first; ++i) before += bytes_of(items_[i]);
  int64_t done = before;  // bytes
  const auto begun = core::Clock::now();
  const size_t ranks = world() == nullptr ? 1 : static_cast<size_t>(world()->size());
  const size_t here = world() == nullptr ? 0 : static_cast<size_t>(world()->rank());
  while (first < items_.size()) {
    // One group of items for each rank.
    std::vector<std::vector<Work>> groups;
    int64_t bytes = 0, tokens = 0;
    const size_t texts = first;
    while (groups.size() < ranks && first < items_.size()) {
      std::vector<Work>& works = groups.emplace_back();
      for (const size_t end = group_end(items_, first); first < end; ++first) {
        bytes += bytes_of(items_[first]);
        works.push_back(work_of(options_, model_, items_[first]));
        tokens += std::ssize(works.back().input.ids);
      }
    }
    const bool is_one_text = ranks == 1 && groups.front().size() == 1;
    const auto show = [&](int64_t some_tokens) {
      const double share = static_cast<double>(some_tokens) / static_cast<double>(std::max<int64_t>(1, tokens));
      const double now = static_cast<double>(done) + share * static_cast<double>(bytes);
      seconds_ = core::seconds_since(begun);
      const double left =
          seconds_ / std::max(1.0, now - static_cast<double>(before)) * (static_cast<double>(bytes_) - now);
      const double rate = seconds_ > 0 ? static_cast<double>(tokens_ + some_tokens) / seconds_ : 0;
      progress_.update(now / static_cast<double>(std::max<int64_t>(1, bytes_)),
                       fmt::format("{} of {} texts  {} tokens/s", some_tokens < tokens ? texts : first, items_.size(),
                                   core::format_count(rate)),
                       left);
      if (is_one_text) stop_if_asked();
    };
    // This rank sees its own tokens; all ranks have about as many.
    const auto show_own = [&](int64_t own) { show(std::min(tokens, own * static_cast<int64_t>(groups.size()))); };
    Tensor own;
    if (here < groups.size()) own = rows_of(groups[here], show_own);
    for (size_t rank = 0; rank < groups.size(); ++rank) {
      const Tensor rows = on_first_rank(own, groups[rank], static_cast<int>(rank));
      if (here == 0) use(groups[rank], rows);
    }
    show(tokens);
    done += bytes;
    tokens_ += tokens;
    for (const std::vector<Work>& works : groups) {
      for (const Work& work : works) cut_ += work.was_cut ? 1 : 0;
    }
    stop_if_asked();
  }
  progress_.clear();
}

std::vector<float> Embedder::vectors() {
  std::vector<float> all;
  run(0, [&](std::span<const Work>, const Tensor& rows) {
    const std::vector<float> values = rows.to_floats();
    all.insert(all.end(), values.begin(), values.end());
  });
  return all;
}

Tensor Embedder::rows_of(std::span<const Work> works, const std::function<void(int64_t tokens)>& on_progress) const {
  EmbedOptions options = options_.embed;
  int64_t done = 0;
  options.on_progress = [&](int64_t tokens, int64_t) { on_progress(done + tokens); };
  if (!options_.late_chunking) {
    std::vector<EncoderInput> inputs;
    for (const Work& work : works) inputs.push_back(work.input);
    return embed_inputs(model_, inputs, options);
  }
  int64_t count = 0;
  for (const Work& work : works) count += work.rows();
  Tensor rows = Tensor::empty({count, int64_t{model_.config().transformer.d_model}});
  int64_t at = 0;
  for (const Work& work : works) {
    rows.slice(0, at, at + work.rows()).copy_from(embed_spans(model_, work.input, work.spans, options));
    at += work.rows();
    done += std::ssize(work.input.ids);
  }
  return rows;
}

}  // namespace alibi::cli
