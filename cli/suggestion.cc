#include "suggestion.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <numeric>
#include <optional>
#include <sstream>
#include <tuple>

namespace alibi::cli {
namespace {

/// Names of options in other programs of the field, separated by spaces, and what they are called here: the first name
/// that the command has.
struct Synonyms {
  std::string_view theirs, ours;
};

// PyTorch's examples, transformers, fairseq, Megatron-LM, nanoGPT, llama.cpp, vLLM, sentence-transformers.
constexpr Synonyms kSynonyms[] = {
    {"lr max-lr peak-lr", "learning-rate"},
    {"lr-schedule lr-scheduler lr-scheduler-type lr-decay-style scheduler", "schedule"},
    {"warmup warmup-iters warmup-updates num-warmup-steps", "warmup-steps"},
    {"wd", "weight-decay"},
    {"optim", "optimizer"},
    {"adam-beta1", "beta1"},
    {"adam-beta2", "beta2"},
    {"adam-eps adam-epsilon epsilon", "eps"},
    {"clip-grad clip-norm grad-clip gradient-clip gradient-clipping max-grad-norm", "clip"},
    {"batch-size bsz global-batch-size per-device-train-batch-size train-batch-size", "batch-tokens"},
    {"micro-batch-size gradient-accumulation-steps grad-accum ubatch-size update-freq", "micro-batch-tokens"},
    {"depth n-layer n-layers num-hidden-layers num-layers", "layers"},
    {"dim embed-dim embedding-dim hidden-dim hidden-size n-embd width", "d-model"},
    {"attention-heads n-head n-heads num-attention-heads num-heads", "heads"},
    {"n-kv-heads num-key-value-heads num-kv-heads", "kv-heads"},
    {"block-size context-length context-size ctx ctx-size max-len max-length max-position-embeddings max-seq-len "
     "max-seq-length n-ctx seq-len seq-length seqlen sequence-length tokens-per-sample",
     "train-length lengths length context-length max-length max-tokens"},
    {"iters max-iters max-steps max-update num-steps steps train-iters", "train-tokens"},
    {"epoch max-epoch max-epochs num-epochs num-train-epochs", "epochs"},
    {"out-dir outdir outfile output output-dir output-file save-dir save-path", "out"},
    {"dev eval-data val val-data valid-data validation validation-file", "valid"},
    {"eval-every eval-interval val-interval", "eval-steps"},
    {"eval-iters max-eval-samples", "eval-tokens"},
    {"checkpoint-interval save-every save-interval save-steps", "checkpoint-steps"},
    {"early-stopping early-stopping-patience", "patience"},
    {"gen-len max-gen-len max-new-tokens n-predict num-predict", "max-tokens"},
    {"temp", "temperature"},
    {"repeat-penalty", "repetition-penalty"},
    {"n-samples num-return-sequences num-samples", "samples"},
    {"amp bf16 compute-dtype dtype fp16 fp32 half mixed-precision torch-dtype", "precision type"},
    {"int8 load-in-8bit q8 quant quantization quantize", "weights type"},
    {"cache-dtype cache-type-k kv-cache-dtype kv-cache-type", "cache-type"},
    {"cores cpus jobs n-threads nthreads num-threads num-workers workers", "threads"},
    {"activation-checkpointing checkpoint-activations gradient-checkpointing", "recompute"},
    {"position-interpolation rope-freq-scale rope-scale rope-scaling", "interpolate"},
    {"attention-window local-attention swa window window-size", "sliding-window"},
    {"method methods pe pos pos-emb pos-enc position-embedding position-embeddings position-encoding",
     "position positions"},
    {"checkpoint finetune init-from pretrained", "from model"},
    {"load restore resume-from resume-from-checkpoint restart", "resume"},
    {"clobber force overwrite-output-dir", "overwrite"},
    {"dry-run", "plan"},
    {"random-seed rng-seed", "seed"},
    {"n-seeds num-seeds repeats runs", "seeds"},
    {"bidirectional-attention encoder mlm non-causal", "no-causal"},
    {"mlm-prob mlm-probability mask-prob", "mask-rate"},
    {"num-results topk", "top top-k"},
    {"pooling-mode pooling-type", "pooling"},
    {"l2-normalize normalise normalize-embeddings", "normalize"},
    {"json-output output-json results", "json"},
    {"n-parallel max-num-seqs parallel", "slots"},
    {"address bind listen", "host"},
};

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream words{std::string(text)};
  return {std::istream_iterator<std::string>(words), {}};
}

/// Insertions, deletions and replacements of letters and exchanges of neighbours that turn `a` into `b`.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, row(b.size() + 1), next(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    next[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      next[j + 1] = std::min({row[j] + (a[i] == b[j] ? 0 : 1), next[j] + 1, row[j + 1] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) {
        next[j + 1] = std::min(next[j + 1], before[j - 1] + 1);
      }
    }
    before = row;
    std::swap(row, next);
  }
  return row.back();
}

/// "learning-rate" for "--learning_rate".
std::string bare(std::string_view name) {
  std::string letters(name.substr(std::min(name.find_first_not_of('-'), name.size())));
  for (char& c : letters) c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

/// How badly a name fits the word; nothing if it does not.
std::optional<size_t> misfit(const std::string& word, const std::string& name) {
  if (name.starts_with(word)) return 0;
  constexpr size_t few = 3;
  if (name.size() >= few && word.starts_with(name)) return 1;
  if (name.ends_with("-" + word)) return 2;
  const size_t changes = distance(word, name);
  if (word.size() < few || changes > (word.size() + 2) / 4) return {};
  return 2 + changes;
}

}  // namespace

std::string suggested(const std::string& word, const std::vector<std::string>& names) {
  const std::string meant = bare(word);
  if (meant.empty()) return {};
  for (const std::string& name : names) {
    if (bare(name) == meant) return name;
  }
  for (const Synonyms& synonyms : kSynonyms) {
    const std::vector<std::string> theirs = words_of(synonyms.theirs);
    if (std::find(theirs.begin(), theirs.end(), meant) == theirs.end()) continue;
    for (const std::string& ours : words_of(synonyms.ours)) {
      for (const std::string& name : names) {
        if (bare(name) == ours) return name;
      }
    }
  }
  std::optional<std::tuple<size_t, size_t, std::string>> best;
  for (const std::string& name : names) {
    const std::optional<size_t> bad = misfit(meant, bare(name));
    if (!bad) continue;
    const std::tuple found(*bad, name.size(), name);
    if (!best || found < *best) best = found;
  }
  return best ? std::get<2>(*best) : "";
}

std::string did_you_mean(const std::string& suggestion) {
  return suggestion.empty() ? "" : "; did you mean '" + suggestion + "'?";
}

}  // namespace alibi::cli
