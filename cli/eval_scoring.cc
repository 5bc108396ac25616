#include "eval_scoring.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "alibi/loglikelihood.h"
#include "common.h"
#include "core/format.h"
#include "report/progress.h"

namespace alibi::cli {
namespace {

template <class Evaluate>
auto with_line(int64_t length, const Evaluate& evaluate) {
  report::Progress progress(stderr, lines_without_terminal());
  progress.begin(fmt::format("evaluate at {}", length));
  LoglikelihoodOptions options;
  options.on_progress = [&](int64_t done, int64_t all) {
    progress.update(static_cast<double>(done) / static_cast<double>(all));
  };
  return evaluate(options);
}

}  // namespace

nlohmann::ordered_json evaluate_as_harness(const LanguageModel& model, const std::vector<text::Document>& documents,
                                           const std::vector<int64_t>& lengths) {
  std::vector<std::string> texts;
  for (const text::Document& document : documents) texts.push_back(document.text());
  auto evals = nlohmann::ordered_json::array();
  say("{:>8}  {:>10}  {:>10}  {:>10}  {:>9}  {:>8}\n", "length", "per word", "per byte", "bits/byte", "tokens",
      "tokens/s");
  for (const int64_t length : lengths) {
    const RollingEvaluation found = with_line(length, [&](const LoglikelihoodOptions& computation) {
      return evaluate_rolling(model, texts, {.length = length, .computation = computation});
    });
    say("{:>8}  {:>10}  {:>10.6f}  {:>10.4f}  {:>9}  {:>8}\n", length, core::format_perplexity(found.word_perplexity()),
        found.byte_perplexity(), found.bits_per_byte(), found.tokens, core::format_count(found.tokens_per_second()));
    evals.push_back({{"length", length},
                     {"documents", found.documents},
                     {"tokens", found.tokens},
                     {"words", found.words},
                     {"bytes", found.bytes},
                     {"loglikelihood", -found.nll_sum},
                     {"nll", found.nll()},
                     {"perplexity", found.perplexity()},
                     {"word_perplexity", found.word_perplexity()},
                     {"byte_perplexity", found.byte_perplexity()},
                     {"bits_per_byte", found.bits_per_byte()},
                     {"tokens_per_second", found.tokens_per_second()}});
  }
  return evals;
}

nlohmann::ordered_json evaluate_as_llama(const LanguageModel& model, const std::vector<text::Document>& documents,
                                         const std::vector<int64_t>& lengths) {
  std::string text;
  for (const text::Document& document : documents) text += document.text();
  auto evals = nlohmann::ordered_json::array();
  say("{:>8}  {:>10}  {:>10}  {:>8}  {:>9}  {:>8}\n", "length", "perplexity", "+/-", "chunks", "tokens", "tokens/s");
  for (const int64_t length : lengths) {
    const ChunkEvaluation found = with_line(length, [&](const LoglikelihoodOptions& computation) {
      return evaluate_chunks(model, text, {.length = length, .computation = computation});
    });
    say("{:>8}  {:>10}  {:>10.5f}  {:>8}  {:>9}  {:>8}\n", length, core::format_perplexity(found.perplexity()),
        found.perplexity_error(), found.chunks, found.tokens, core::format_count(found.tokens_per_second()));
    evals.push_back({{"length", length},
                     {"chunks", found.chunks},
                     {"tokens", found.tokens},
                     {"nll", found.nll()},
                     {"perplexity", found.perplexity()},
                     {"perplexity_error", found.perplexity_error()},
                     {"tokens_per_second", found.tokens_per_second()}});
  }
  return evals;
}

}  // namespace alibi::cli
