#include "train/sharded_gradients.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/parallel.h"
#include "model/transformer_state.h"
#include "nn/elementwise.h"
#include "ranks/sequence.h"
#include "train/optimizer.h"

namespace alibi::training {

/// Work that another thread does in order.
class Background {
 public:
  Background() : thread_([this](const std::stop_token& stop) { run(stop); }) {}
  /// Waits for the running work and drops what has not begun.
  ~Background() = default;

  void add(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  /// Waits until everything is done. Rethrows the first exception; work after it is not done.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_.empty() && !is_running_; });
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  void run(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (changed_.wait(lock, stop, [this] { return !waiting_.empty(); }) && !stop.stop_requested()) {
      const std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      is_running_ = true;
      lock.unlock();
      std::exception_ptr failure;
      try {
        work();
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      is_running_ = false;
      if (failure) {
        failure_ = failure;
        waiting_.clear();
      }
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> waiting_;
  bool is_running_ = false;
  std::exception_ptr failure_;
  std::jthread thread_;  // ends before the members above are destroyed
};

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

void check_ranks(int ranks, const TrainOptions& options) {
  const int64_t divide = options.sequence_ranks, most = options.shards * divide;
  check_usage(ranks <= most,
              "[train] {} ranks were started, but the run has {} shards{}, which is the largest number of ranks; set "
              "shards to {} or a multiple of it",
              ranks, options.shards, divide > 1 ? fmt::format(" of sequences for {} ranks each", divide) : "",
              core::ceil_div(ranks, divide));
  if (divide == 1) return;
  check_usage(ranks % divide == 0 && options.shards % std::max<int64_t>(1, ranks / divide) == 0,
              "[train] {} ranks were started, sequence_ranks is {} and shards is {}; expected a number of ranks of "
              "mpirun that is {} times a divisor of shards",
              ranks, divide, options.shards, divide);
}

ShardedGradients::ShardedGradients(ranks::Group* group, const Owners& owners, LanguageModel& model,
                                   const TrainOptions& options)
    : group_(group),
      owners_(owners),
      model_(model),
      options_(options),
      parameters_(model.parameters()),
      shards_(static_cast<int>(options.shards * options.sequence_ranks)),
      own_(ranks::shards_of(group == nullptr ? 0 : group->rank(), owners.ranks(), shards_)),
      groups_(groups_of(parameters_, model.config().transformer.layers)) {
  const int canon = model.config().transformer.attention.canon_kernel;
  check_usage(canon == 0 || options.sequence_ranks == 1,
              "[train] canon_kernel is {} and sequence_ranks is {}, expected 0 or 1: the convolution does not read the "
              "last tokens of another rank",
              canon, options.sequence_ranks);
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
    const std::vector<ranks::Shards> whole = ranks::nodes_within(both, shards_);
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
  for (const auto& [left, right] : ranks::sums_of(nodes, own_, shards_)) {
    for (const size_t i : together) {
      Tensor sum = gradient(left, i);
      nn::add(sum, gradient(right, i), sum);
    }
  }
  if (group_ == nullptr) return;
  const std::vector<ranks::Shards> largest = ranks::nodes_within(own_, shards_);
  std::vector<std::vector<ParameterRange>> parts;
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
  const std::vector<float> sums = ranks::reduce_scatter(*group_, shards_, {elements, pack_node});
  unpack(sums, parts[static_cast<size_t>(group_->rank())], tensors_of(nodes_.size()));
}

std::span<const MicroBatch> ShardedGradients::blocks_of(const Update& update, int shard) const {
  return update.of_shard(shard % static_cast<int>(options_.shards));
}

std::vector<int> ShardedGradients::dividers(int64_t length) const {
  // Fewer ranks divide a shorter sequence, so that each of them has rows.
  const auto count = std::clamp<int64_t>(length / SequenceShard::row_multiple, 1, options_.sequence_ranks);
  const int apart = group_->size() / static_cast<int>(options_.sequence_ranks);
  std::vector<int> members;
  for (int part = 0; part < count; ++part) members.push_back(part * apart + group_->rank() % apart);
  return members;
}

bool ShardedGradients::has_part_of(const Update& update, const MicroBatch& batch) const {
  if (options_.sequence_ranks == 1) return true;
  const std::vector<int> members = dividers(update.length_of(batch));
  return std::find(members.begin(), members.end(), group_->rank()) != members.end();
}

double ShardedGradients::accumulate(const Update& update, const MicroBatch& batch) {
  if (options_.sequence_ranks == 1) return update.accumulate(model_, batch);
  if (!has_part_of(update, batch)) return 0;
  const int64_t length = update.length_of(batch);
  const SequenceRanks ranks = ranks::sequence_ranks(*group_, dividers(length));
  model::divide_sequences(model_, &ranks, length);
  const double loss = update.accumulate(model_, batch, &ranks);
  model::divide_sequences(model_, nullptr, 0);
  return loss;
}

/// Accumulates the gradients of the last shard of this rank. Those of a layer are complete before the backward pass
/// ends.
double ShardedGradients::accumulate_last(const Update& update) {
  const std::span<const MicroBatch> batches = blocks_of(update, own_.last - 1);
  double loss = 0;
  for (const MicroBatch& batch : batches.first(batches.size() - 1)) loss += accumulate(update, batch);
  const bool has_part = has_part_of(update, batches.back());
  if (group_ != nullptr && has_part) {
    model::on_layer_gradients(model_, [this](int layer) {
      background_->add([this, layer] { finish(groups_.size() - 2 - static_cast<size_t>(layer)); });
    });
  }
  loss += accumulate(update, batches.back());
  model::on_layer_gradients(model_, {});
  if (group_ == nullptr) {
    for (size_t i = 0; i < groups_.size(); ++i) finish(i);
  } else {
    for (size_t i = has_part ? groups_.size() - 1 : 0; i < groups_.size(); ++i) {
      background_->add([this, i] { finish(i); });
    }
    background_->wait();
  }
  return loss;
}

ShardedGradients::Sums ShardedGradients::compute(BlockOrder& order, int64_t step) {
  const Update update(model_, order, step, options_);
  std::vector<double> losses(static_cast<size_t>(shards_));
  for (int shard = own_.first; shard < own_.last; ++shard) {
    model_.zero_gradients();
    double& loss = losses[static_cast<size_t>(shard)];
    if (shard + 1 == own_.last) {
      loss = accumulate_last(update);
      continue;
    }
    for (const MicroBatch& batch : blocks_of(update, shard)) loss += accumulate(update, batch);
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
  const auto shards_of = [&](int rank) { return ranks::shards_of(rank, group_->size(), shards_); };
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
