// Where a model's tokens come from: the one door for all that train.
#pragma once

#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/tokenizer.h"

namespace alibi {

/// Ids, in memory or mapped from a file; copies share them.
struct TokenStream {
  std::span<const int32_t> tokens;
  std::shared_ptr<const void> owner;  ///< keeps them where they are
};

struct TrainingData {
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenStream train, valid;
  int64_t train_bytes = 0;  ///< of the text behind the tokens
  int64_t valid_bytes = 0;
  std::string split_rule;  ///< one sentence for reports: what is held out, and by which rule
};

/// How text becomes tokens.
struct TokenizerChoice {
  std::string kind = "byte";  ///< one of tokenizer_kinds()
  int64_t vocab_size = 0;     ///< 0: the kind's own choice
  int64_t min_count = 1;      ///< words: rarer ones are unknown
};
const std::vector<std::string>& tokenizer_kinds();

/// What is being done, and how much of it, in [0, 1].
using TextProgress = std::function<void(std::string_view work, double fraction)>;

/// Reads and splits the texts as read_corpus() does (see corpus.h), makes the tokenizer from what is trained on, and
/// encodes both parts. Throws UsageError for a kind or size that does not exist, Error as read_corpus() does.
TrainingData training_data(const std::vector<std::string>& texts, const std::vector<std::string>& valid,
                           const TokenizerChoice& choice = {}, const TextProgress& progress = {},
                           std::istream& standard_input = std::cin);

}  // namespace alibi
