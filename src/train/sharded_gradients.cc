#include "train/sharded_gradients.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "model/transformer_state.h"
#include "nn/elementwise.h"
#include "train/background.h"
#include "train/optimizer.h"

namespace alibi::training {
namespace {

std::vector<std::vector<size_t>> groups_of(const std::vector<Parameter*>& parameters, int layers) {
  std::vector<std::vector<size_t>> groups(static_cast<size_t>(layers) + 1);
  for (size_t i = 0; i < parameters.size(); ++i) {
    size_t group = groups.size() - 1;
    for (int layer = 0; layer < layers; ++layer) {
      if (parameters[i]->name.starts_with(fmt::format("blocks.{}.", layer))) {
        group = static_cast<size_t>(layers - 1 - layer);
      }
    }
    groups[group].push_back(i);
  }
  return groups;
}

}  // namespace

ShardedGradients::ShardedGradients(ranks::Group* group, const Owners& owners, LanguageModel& model,
                                   const TrainOptions& options)
    : group_(group),
      owners_(owners),
      model_(model),
      options_(options),
      parameters_(model.parameters()),
      own_(ranks::shards_of(group == nullptr ? 0 : group->rank(), owners.ranks(), static_cast<int>(options.shards))),
      groups_(groups_of(parameters_, model.config().transformer.layers)) {
  if (group_ != nullptr) background_ = std::make_unique<Background>();
}

ShardedGradients::~ShardedGradients() { model::on_layer_gradients(model_, {}); }

const Tensor& ShardedGradients::gradient(size_t node, size_t parameter) const {
  return node < earlier_.size() ? earlier_[node][parameter] : parameters_[parameter]->gradient;
}

/// Puts the gradients of a shard aside, and sums nodes of the tree that are complete.
void ShardedGradients::keep(int shard) {
  std::vector<Tensor>& kept = earlier_.emplace_back();
  nodes_.push_back({shard, shard + 1});
  for (Parameter* parameter : parameters_) kept.push_back(std::exchange(parameter->gradient, Tensor()));
  while (nodes_.size() > 1) {
    const ranks::Shards left = nodes_[nodes_.size() - 2], right = nodes_.back(), both{left.first, right.last};
    const std::vector<ranks::Shards> whole = ranks::nodes_within(both, static_cast<int>(options_.shards));
    if (whole.size() != 1 || ranks::middle_of(both) != left.last) break;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      Tensor& sum = earlier_[earlier_.size() - 2][i];
      nn::add(sum, earlier_.back()[i], sum);
    }
    spare_.push_back(std::move(earlier_.back()));
    earlier_.pop_back();
    nodes_.pop_back();
    nodes_.back() = both;
  }
  if (spare_.empty()) return;
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i]->gradient = std::move(spare_.back()[i]);
  spare_.pop_back();
}

/// Sums the gradients of these parameters over this rank's shards, all of which are known, and over the other ranks'.
void ShardedGradients::finish(size_t group_of_parameters) {
  const std::vector<size_t>& together = groups_[group_of_parameters];
  std::vector<ranks::Shards> nodes = nodes_;
  nodes.push_back({own_.last - 1, own_.last});
  for (const auto& [left, right] : ranks::sums_of(nodes, own_, static_cast<int>(options_.shards))) {
    for (const size_t i : together) {
      Tensor sum = gradient(left, i);
      nn::add(sum, gradient(right, i), sum);
    }
  }
  if (group_ == nullptr) return;
  const std::vector<ranks::Shards> largest = ranks::nodes_within(own_, static_cast<int>(options_.shards));
  std::vector<std::vector<Part>> parts;
  std::vector<int64_t> elements;
  for (int rank = 0; rank < owners_.ranks(); ++rank) {
    parts.push_back(parts_within(owners_.parts_of(rank), together));
    elements.push_back(elements_of(parts.back()));
  }
  const auto tensors_of = [&](size_t node) {
    std::vector<Tensor> tensors;
    for (size_t i = 0; i < parameters_.size(); ++i) tensors.push_back(gradient(node, i));
    return tensors;
  };
  const auto pack_node = [&](size_t node, int owner, std::span<float> to) {
    const auto at = std::find_if(nodes.begin(), nodes.end(),
                                 [&](const ranks::Shards& one) { return one.first == largest[node].first; });
    pack(parts[static_cast<size_t>(owner)], tensors_of(static_cast<size_t>(at - nodes.begin())), to);
  };
  const std::vector<float> sums =
      ranks::reduce_scatter(*group_, static_cast<int>(options_.shards), {elements, pack_node});
  unpack(sums, parts[static_cast<size_t>(group_->rank())], tensors_of(nodes_.size()));
}

/// Accumulates the gradients of the last shard of this rank. Those of a layer are complete before the backward pass
/// ends.
double ShardedGradients::accumulate_last(const Update& update) {
  const std::span<const MicroBatch> batches = update.of_shard(own_.last - 1);
  double loss = 0;
  for (const MicroBatch& batch : batches.first(batches.size() - 1)) loss += update.accumulate(model_, batch);
  if (group_ != nullptr) {
    model::on_layer_gradients(model_, [this](int layer) {
      background_->add([this, layer] { finish(groups_.size() - 2 - static_cast<size_t>(layer)); });
    });
  }
  loss += update.accumulate(model_, batches.back());
  model::on_layer_gradients(model_, {});
  if (group_ == nullptr) {
    for (size_t i = 0; i < groups_.size(); ++i) finish(i);
  } else {
    background_->add([this] { finish(groups_.size() - 1); });
    background_->wait();
  }
  return loss;
}

ShardedGradients::Sums ShardedGradients::compute(BlockOrder& order, int64_t step) {
  const Update update(model_, order, step, options_);
  std::vector<double> losses(static_cast<size_t>(options_.shards));
  for (int shard = own_.first; shard < own_.last; ++shard) {
    model_.zero_gradients();
    double& loss = losses[static_cast<size_t>(shard)];
    if (shard + 1 == own_.last) {
      loss = accumulate_last(update);
      continue;
    }
    for (const MicroBatch& batch : update.of_shard(shard)) loss += update.accumulate(model_, batch);
    keep(shard);
  }
  if (group_ == nullptr && !earlier_.empty()) {  // the sums are in the first node
    for (size_t i = 0; i < parameters_.size(); ++i) std::swap(parameters_[i]->gradient, earlier_.front()[i]);
  }
  for (std::vector<Tensor>& node : earlier_) spare_.push_back(std::move(node));
  earlier_.clear();
  nodes_.clear();
  return sums_of_all(update, losses);
}

ShardedGradients::Sums ShardedGradients::sums_of_all(const Update& update, const std::vector<double>& losses) {
  Sums sums{{0, update.tokens()}, 0};
  if (group_ == nullptr) {
    sums.update.loss = std::accumulate(losses.begin(), losses.end(), 0.0) / static_cast<double>(update.targets());
    sums.norm = gradient_norm(parameters_);
    return sums;
  }
  // Each rank sends the losses of its shards and the sums of squares of its parts.
  std::vector<std::vector<double>> values;
  std::vector<std::span<std::byte>> memory;
  const auto shards_of = [&](int rank) {
    return ranks::shards_of(rank, group_->size(), static_cast<int>(options_.shards));
  };
  for (int rank = 0; rank < group_->size(); ++rank) {
    values.emplace_back(static_cast<size_t>(shards_of(rank).count()) + owners_.parts_of(rank).size());
  }
  std::vector<double>& own = values[static_cast<size_t>(group_->rank())];
  const std::vector<double> squares = squares_of(owners_.parts_of(group_->rank()), parameters_);
  std::copy(squares.begin(), squares.end(), std::copy_n(losses.begin() + own_.first, own_.count(), own.begin()));
  for (std::vector<double>& one : values) memory.push_back(ranks::bytes_of(one));
  ranks::all_gather(*group_, ranks::Tag::values, memory);

  std::vector<size_t> next;  // in the values of each rank
  for (int rank = 0; rank < group_->size(); ++rank) {
    const std::vector<double>& theirs = values[static_cast<size_t>(rank)];
    next.push_back(static_cast<size_t>(shards_of(rank).count()));
    for (size_t i = 0; i < next.back(); ++i) sums.update.loss += theirs[i];
  }
  sums.update.loss /= static_cast<double>(update.targets());
  double total = 0;
  for (const int owner : owners_.ranks_of_parts()) {
    total += values[static_cast<size_t>(owner)][next[static_cast<size_t>(owner)]++];
  }
  sums.norm = std::sqrt(total);
  return sums;
}

}  // namespace alibi::training
