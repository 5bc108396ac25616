// Measures how fast a model reads a prompt and generates tokens, as a function of the context length.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "alibi/context.h"
#include "alibi/language_model.h"
#include "bench/ceilings.h"

namespace alibi::bench {

struct GenerateBenchSettings {
  double seconds = 2;    ///< time for the tokens of each context
  double longest = 10;   ///< in seconds; prompts that would take longer are not read whole
  int64_t held = 16384;  ///< maximum number of keys that a head holds; older ones count as evicted
  int64_t memory_bytes =
      int64_t{1} << 29;  ///< bytes read between tokens, which flushes the caches as other programs do; also timed
  std::optional<DType> cached = {};
  uint64_t seed = 0;
};

struct GeneratePoint {
  int64_t context = 0;       ///< number of tokens before the timed ones
  int64_t held = 0;          ///< number of these keys that each head holds
  double token_seconds = 0;  ///< median seconds per token
  double best_seconds = 0;   ///< minimum seconds per token
  int64_t tokens = 0;        ///< number of timed tokens
  double prompt_rate = 0;    ///< tokens per second when a chunk of a prompt is read at that context
  double first_seconds = 0;  ///< seconds to the first token after a prompt of this length
  bool first_is_read =
      false;  ///< whether the prompt was read; otherwise first_seconds is a sum over chunks at the measured rates
  int64_t cache_bytes = 0;
  double weight_rate = 0;    ///< bytes of weights per second while tokens are generated, from the minimum time
  double evicted_share = 0;  ///< bound of the share of attention weight of evicted keys
};

/// Contexts repeat the keys and values of a short prompt that the model has read, because reading a million tokens
/// would take hours. The cost of a token depends only on the number and the norms of the keys.
class GenerateBench {
 public:
  GenerateBench(const LanguageModel& model, const GenerateBenchSettings& settings);
  ~GenerateBench();

  /// Returns points for rising contexts, whose tokens are timed alternately. `on_progress` receives a description of
  /// the current work.
  std::vector<GeneratePoint> measure(const std::vector<int64_t>& contexts,
                                     const std::function<void(double, const std::string&)>& on_progress);
  /// Bytes of all weights that a token needs, in the data types that the matrix products read.
  int64_t weight_bytes() const { return weight_bytes_; }
  /// Best rate of reading memory between the tokens in bytes per second.
  double bandwidth() const { return memory_.best(); }

 private:
  Context filled(int64_t context);
  double read_prompt(int64_t tokens);

  const LanguageModel& model_;
  GenerateBenchSettings settings_;
  MemoryReader memory_;
  Tensor ids_;
  int64_t weight_bytes_ = 0;
};

std::string generate_table_head();
/// `bandwidth` is the best rate of reading memory in bytes per second.
std::string generate_table_row(const GeneratePoint& point, double bandwidth);
nlohmann::ordered_json to_json(const GeneratePoint& point, double bandwidth);

}  // namespace alibi::bench
