// What `alibi embed` computes: the options, the texts as the model reads them, and the loop over the texts.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "alibi/embed.h"
#include "common.h"
#include "embed_items.h"
#include "report/progress.h"

namespace alibi::cli {

struct EmbedCommand : CommonOptions {
  std::string model;
  std::vector<std::string> texts, similarity;
  std::string pooling = "mean", out, field = "text";
  int64_t check_float32 = 0, check_skip = 0;
  bool whole = false, late_chunking = false, token_vectors = false;
  int64_t max_tokens = 0, top = 10;
  bool center = false;  ///< with `similarity`
  EmbedOptions embed;
  ModelUse use;

  ItemKind kind() const { return late_chunking ? ItemKind::chunks : whole ? ItemKind::files : ItemKind::lines; }
};

/// A text as the model reads it, and the rows that it gives.
struct Work {
  const EmbedItem* item;
  EncoderInput input;
  std::vector<TokenSpan> spans;  ///< late chunking
  bool was_cut = false;

  int64_t rows() const { return spans.empty() ? 1 : std::ssize(spans); }
};

Work work_of(const EmbedCommand& options, const LanguageModel& model, const EmbedItem& item);

void warn_of_cut(const EmbedCommand& options, int64_t count);

/// The number of items in the whole groups that the first `count` items contain. A run that continues begins at a
/// group, so that it forms the same batches, and gives the same bits, as a run that was not interrupted.
size_t whole_groups(const std::vector<EmbedItem>& items, size_t count);

/// Computes rows and shows the progress.
class Embedder {
 public:
  Embedder(const EmbedCommand& options, const LanguageModel& model, const std::vector<EmbedItem>& items, bool is_shown);

  /// Calls use(works, rows [sum of their rows, width]) for some items at a time, from the item `first` on. A signal
  /// stops it after these items, or at once in a single long text. Ranks share the items, and rank 0 alone calls `use`.
  void run(size_t first, const std::function<void(std::span<const Work> works, const Tensor& rows)>& use);
  /// The rows of all items, one after the other.
  std::vector<float> vectors();

  int64_t tokens() const { return tokens_; }
  int64_t cut() const { return cut_; }
  double tokens_per_second() const { return seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0; }

 private:
  Tensor rows_of(std::span<const Work> works, const std::function<void(int64_t tokens)>& on_progress) const;
  void stop_if_asked();
  /// Gives rank 0 the rows that another rank has computed.
  Tensor on_first_rank(Tensor rows, std::span<const Work> works, int rank) const;

  const EmbedCommand& options_;
  const LanguageModel& model_;
  const std::vector<EmbedItem>& items_;
  report::Progress progress_;
  int64_t bytes_ = 0, tokens_ = 0, cut_ = 0;
  double seconds_ = 0;
};

/// Compares `vectors`, of the first texts or of all, with those in float32 (--check-float32) and with those for which
/// attention visits every key (--check-skip), as the options request. Prints the cosines if the vectors are written to
/// a file, and returns them.
nlohmann::ordered_json checked_vectors(const EmbedCommand& options, const LanguageModel& model,
                                       const std::vector<EmbedItem>& items, std::span<const float> vectors);

}  // namespace alibi::cli
