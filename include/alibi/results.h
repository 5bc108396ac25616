// What a comparison measured, and what its report draws (results.json has the same). Plain numbers.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace alibi {

/// One evaluation: all held-out tokens, cut into windows of `length` that advance by `stride`.
struct EvaluationPoint {
  int64_t length = 0;
  int64_t stride = 0;
  int64_t tokens = 0;            ///< tokens scored, each exactly once
  double nll = 0;                ///< mean negative log-likelihood per token, nats
  double perplexity = 0;         ///< exp(nll)
  double bits_per_byte = 0;      ///< sum of the nll / ln 2 / bytes of text
  double tokens_per_second = 0;  ///< tokens scored per second
  std::string gap;               ///< not empty: why this length could not be evaluated (no number is then valid)
};

struct LossPoint {
  int64_t step = 0;  ///< updates done
  int64_t tokens = 0;
  double loss = 0;  ///< mean training nll per token since the last point, nats
};

struct MethodResults {
  std::string name;  ///< alibi, sinusoidal, rotary, t5, learned, none
  int64_t parameters = 0;
  int64_t train_tokens = 0;
  double train_seconds = 0;
  double train_tokens_per_second = 0;
  int64_t train_peak_bytes = 0;  ///< most resident memory of the process while this method trained
  std::vector<LossPoint> loss;
  std::vector<EvaluationPoint> evaluations;  ///< rising lengths
  int64_t eval_peak_bytes = 0;
  int64_t per_position_length = 0;
  std::vector<double> per_position_nll;  ///< mean nll of the tokens at each position of the window, nats
  std::string sample_prompt;
  std::string sample;       ///< text generated after the prompt, far past the training length
  std::string sample_note;  ///< not empty: why the sample stops early
  /// Bytes of prompt + sample that were there when the training length was reached; < 0: tokens are bytes, so
  /// train_length of them.
  int64_t sample_bytes_at_train_length = -1;
  std::string model_folder;
};

struct CompareResults {
  int64_t train_length = 0;
  uint64_t seed = 0;
  int threads = 0;
  std::string preset;
  int64_t parameters = 0;  ///< of the first method
  int64_t train_bytes = 0, valid_bytes = 0, train_files = 0, valid_files = 0;
  std::string corpus_name;  ///< how the user named the text
  std::string tokenizer;    ///< byte, bpe, unigram, words; empty: not known
  int64_t vocab_size = 0;
  std::vector<MethodResults> methods;
  // How to repeat it.
  std::string command;
  std::string machine;  ///< CPU, cores, instruction set
  std::string version;
  std::string started;  ///< UTC, ISO 8601
  double seconds = 0;
  std::vector<std::pair<std::string, std::string>> settings;  ///< shown in the report in this order
};

}  // namespace alibi
