// Measures how fast a model reads a prompt and writes tokens, by how much it has read before.
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
  double seconds = 2;                       ///< time for the tokens of each context
  double longest = 10;                      ///< prompts that would take longer are not read to their end, in seconds
  int64_t held = 16384;                     ///< keys that a head holds at most; older ones count as evicted
  int64_t memory_bytes = int64_t{1} << 29;  ///< read between tokens, as other programs do, and timed
  std::optional<DType> cached = {};
  uint64_t seed = 0;
};

struct GeneratePoint {
  int64_t context = 0;         ///< tokens before
  int64_t held = 0;            ///< of these, keys that each head holds
  double token_seconds = 0;    ///< of a token, median
  double best_seconds = 0;     ///< and least
  int64_t tokens = 0;          ///< how many were timed
  double prompt_rate = 0;      ///< tokens per second when a chunk of a prompt is read at that context
  double first_seconds = 0;    ///< to the first token after a prompt of this length
  bool first_is_read = false;  ///< it was read; otherwise that is the sum of its chunks at the rates that were measured
  int64_t cache_bytes = 0;
  double weight_rate = 0;    ///< bytes of weights per second while tokens are written, by the least time
  double evicted_share = 0;  ///< bound of what evicted keys could have weighed
};

/// Contexts consist of repeated keys and values of a short prompt that the model read, because reading a million tokens
/// would take hours. The cost of a token depends on the number and the norms of the keys only.
class GenerateBench {
 public:
  GenerateBench(const LanguageModel& model, const GenerateBenchSettings& settings);
  ~GenerateBench();

  /// Points for rising contexts, whose tokens are timed alternately. `on_progress` receives a description of the work.
  std::vector<GeneratePoint> measure(const std::vector<int64_t>& contexts,
                                     const std::function<void(double, const std::string&)>& on_progress);
  /// Bytes of all weights that a token needs, in the types that products read.
  int64_t weight_bytes() const { return weight_bytes_; }
  /// Best rate at which memory was read between the tokens, bytes per second.
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
/// `bandwidth` of memory, bytes per second.
std::string generate_table_row(const GeneratePoint& point, double bandwidth);
nlohmann::ordered_json to_json(const GeneratePoint& point, double bandwidth);

}  // namespace alibi::bench
