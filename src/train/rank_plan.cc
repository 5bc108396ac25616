#include "train/rank_plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "core/check.h"
#include "model/parameters.h"
#include "ranks/tree.h"
#include "train/batches.h"

namespace alibi::training {
namespace {

constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));

/// Of an update's time in one process: a backward pass takes twice the time of a forward pass.
constexpr double kBackward = 2.0 / 3;

}  // namespace

RankPlan plan_ranks(const LanguageModelConfig& config, const TrainOptions& options, int ranks, const Link& link,
                    double seconds_alone) {
  const auto shards = static_cast<int>(options.shards);
  check_usage(ranks >= 1 && ranks <= shards,
              "[train] the number of ranks is {}, expected 1 to the number of shards, {}", ranks, shards);
  check_usage(options.sequence_ranks == 1,
              "[train] sequence_ranks is {}, expected 1: a plan does not know the traffic of divided sequences",
              options.sequence_ranks);
  check_usage(link.bytes_per_second > 0, "[train] the link carries {} bytes per second, expected more than 0",
              link.bytes_per_second);
  int max_shards = 0;
  size_t max_nodes = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const ranks::Shards own = ranks::shards_of(rank, ranks, shards);
    max_shards = std::max(max_shards, own.count());
    max_nodes = std::max(max_nodes, ranks::nodes_within(own, shards).size());
  }
  int64_t parameters = 0, largest_group = 0, group = 0;
  std::string layer;
  for (const model::ParameterSpec& spec : model::parameter_specs(config)) {
    const std::string own_layer =
        spec.name.starts_with("blocks.") ? spec.name.substr(0, spec.name.find('.', 7)) : std::string();
    if (own_layer != layer) group = 0;
    layer = own_layer;
    parameters += spec.elements();
    largest_group = std::max(largest_group, group += spec.elements());
  }
  const int64_t slots = options.optimizer == Optimizer::adamw ? 2 : 1;
  const int64_t copies = std::bit_width(static_cast<unsigned>(max_shards));
  RankPlan plan;
  plan.gradients = copies * parameters * kFloatBytes;
  plan.optimizer = slots * parameters / ranks * kFloatBytes;
  plan.messages = ranks == 1 ? 0 : 2 * static_cast<int64_t>(max_nodes) * largest_group * kFloatBytes;
  plan.compute = seconds_alone * max_shards / shards;
  if (ranks == 1) return plan;
  const double to_others = static_cast<double>(parameters * kFloatBytes) * (ranks - 1) / ranks;
  const double gradient_bytes = static_cast<double>(max_nodes) * to_others;
  plan.sent = std::llround(gradient_bytes + to_others);
  // Gradients of a layer are sent while the backward pass of a rank's last micro-batch computes the layers before it,
  // and the last layers' messages follow it. Each group of parameters is one exchange.
  const auto groups = static_cast<double>(config.transformer.layers + 1);
  const double gradients = gradient_bytes / link.bytes_per_second + groups * link.delay;
  const auto blocks = static_cast<double>(blocks_per_update(options));
  const double at_once = std::max(
      1.0, std::floor(static_cast<double>(options.micro_batch_tokens) / static_cast<double>(options.train_length)));
  const double last_batch = seconds_alone * std::min(at_once, blocks / shards) / blocks;
  const double hidden = kBackward * last_batch * (groups - 1) / groups;
  plan.gradients_alone = std::max(gradients - hidden, gradients / groups);
  plan.weights_exchange = to_others / link.bytes_per_second + groups * link.delay;
  return plan;
}

}  // namespace alibi::training
