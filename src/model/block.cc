#include "model/block.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "attention/decode/eviction.h"
#include "attention/decode/kv_cache_state.h"
#include "core/check.h"
#include "core/parallel.h"
#include "model/pass.h"
#include "nn/activation.h"
#include "nn/elementwise.h"
#include "nn/linear.h"
#include "nn/scale.h"
#include "nn/short_conv.h"

namespace alibi::model {
namespace {

/// In inference the feed-forward layer processes this many rows at a time, so that its wide hidden layer is never
/// allocated for all rows.
constexpr int64_t rows_at_a_time = 4096;

/// With up to this many tokens a cache is read by attention_decode(), with more by attention().
constexpr int64_t max_decoded = 16;

/// Width of the queries, keys and values of a row, which are adjacent.
int64_t qkv_dim(const TransformerConfig& config) {
  return int64_t{config.attention.heads + 2 * config.key_heads()} * config.head_dim();
}
/// Width of the first feed-forward layer's output. With a gated activation, gate and value are adjacent.
int64_t up_dim(const TransformerConfig& config) {
  return int64_t{config.ffn_dim()} * (nn::is_gated(config.block.activation) ? 2 : 1);
}

/// Initial values of a block's matrices, and of the biases that do not start at zero.
struct Starts {
  Initializer qkv, out, up, down, wide_bias, down_bias;

  explicit Starts(const TransformerConfig& config)
      : qkv(Initializer::constant(0)), out(qkv), up(qkv), down(qkv), wide_bias(qkv), down_bias(qkv) {
    const int width = config.d_model, hidden = config.ffn_dim();
    if (config.initialization == Initialization::fairseq) {
      qkv = Initializer::xavier(width, width, 1 / std::numbers::sqrt2_v<float>);
      out = Initializer::xavier(width, width);
      up = wide_bias = Initializer::linear(width);
      down = down_bias = Initializer::linear(hidden);
      return;
    }
    // Linear layers start with the variance of PyTorch's default, 1 / (3 fan_in); projections back into the residual
    // stream are divided by sqrt(2 * layers), as in GPT-2 and MPT, so that its variance does not grow with depth.
    const auto deviation = [](int fan_in) { return std::sqrt(1.0f / (3.0f * static_cast<float>(fan_in))); };
    const float residual = 1.0f / std::sqrt(2.0f * static_cast<float>(std::max(config.layers, 1)));
    qkv = up = Initializer::normal(deviation(width));
    out = Initializer::normal(deviation(width) * residual);
    down = Initializer::normal(deviation(hidden) * residual);
  }
};

}  // namespace

void Block::declare(const VisitParameter& visit) {
  const std::string at = fmt::format("blocks.{}.", layer_);
  const int64_t width = config_.d_model;
  const Starts starts(config_);
  const auto bias = [&](Initializer start) { return config_.block.bias ? std::optional(start) : std::nullopt; };
  std::vector<std::string> up_parts;
  if (nn::is_gated(config_.block.activation)) up_parts = {at + "ffn.gate_proj", at + "ffn.up_proj"};

  norm1_.declare(visit, at + "norm_1", config_, width);
  if (const int taps = config_.attention.canon_kernel; taps > 0) {
    // A stream of its own, so that the other parameters start as without it.
    visit(canon_,
          {.name = at + "attn.canon.weight", .shape = {taps, width}, .start = Initializer::constant(0), .stream = 0});
  }
  qkv_.declare(visit, at + "attn.Wqkv", qkv_dim(config_), width, starts.qkv, bias(starts.wide_bias));
  if (config_.attention.qk_norm) {
    q_norm_.declare(visit, at + "attn.q_ln", config_, width);
    k_norm_.declare(visit, at + "attn.k_ln", config_, int64_t{config_.key_heads()} * config_.head_dim());
    if (config_.attention.qk_norm_eps > 0) q_norm_.eps = k_norm_.eps = config_.attention.qk_norm_eps;
    if (config_.attention.qk_norm_per_head) {
      q_norm_.groups = config_.attention.heads;
      k_norm_.groups = config_.key_heads();
    }
  }
  if (config_.attention.sinks) {
    visit(sinks_, {.name = at + "attn.sinks", .shape = {config_.attention.heads}, .start = Initializer::constant(0)});
  }
  if (const float start = config_.attention.ssmax; start > 0) {
    visit(ssmax_,
          {.name = at + "attn.ssmax", .shape = {config_.attention.heads}, .start = Initializer::constant(start)});
  }
  if (config_.attention.output_gate) {
    gate_.declare(visit, at + "attn.gate_proj", width, width, starts.qkv, std::nullopt);
  }
  out_.declare(visit, at + "attn.out_proj", width, width, starts.out, bias(Initializer::constant(0)));
  if (config_.block.normed_attention) attention_norm_.declare(visit, at + "attn.norm", config_, width);
  norm2_.declare(visit, at + "norm_2", config_, width);
  const std::optional<Initializer> up_bias = config_.block.up_bias ? bias(starts.wide_bias) : std::nullopt;
  up_.declare(visit, at + "ffn.up_proj", up_dim(config_), width, starts.up, up_bias, up_parts);
  down_.declare(visit, at + "ffn.down_proj", width, config_.ffn_dim(), starts.down, bias(starts.down_bias));
}

void BlockProducts::each(const TransformerConfig& config, const PassMode& mode, int64_t rows,
                         const VisitTensor& visit) {
  const bool kept = mode.keep != Keep::nothing;
  visit(kept, qkv, {rows, qkv_dim(config)}, mode.type());
  if (config.attention.qk_norm) {
    const int64_t columns_of_keys = int64_t{config.key_heads()} * config.head_dim();
    for (auto [normed, columns] : {std::pair(&q, int64_t{config.d_model}), std::pair(&k, columns_of_keys)}) {
      const Shape of_norms = {config.attention.qk_norm_per_head ? rows * columns / config.head_dim() : rows};
      visit(kept, normed->y, {rows, columns}, mode.type());
      if (config.block.norm == Norm::layer_norm) visit(kept, normed->statistics.mean, of_norms, DType::float32);
      visit(kept, normed->statistics.rstd, of_norms, DType::float32);
    }
  }
  if (config.attention.output_gate) visit(kept, gate, {rows, config.d_model}, mode.type());
  if (kept) visit(kept, attended, {rows, config.d_model}, mode.type());
  visit(kept, up, {kept ? rows : std::min(rows, rows_at_a_time), up_dim(config)}, mode.type());
}

void BlockMemory::each(const TransformerConfig& config, const PassMode& mode, int64_t rows, const VisitTensor& visit) {
  if (mode.keep != Keep::nothing) {
    for (ResidualNorm* at : {&attention, &feed_forward}) {
      visit(true, at->x, {rows, config.d_model}, mode.type());
      at->each_statistic(config, rows, visit);
    }
  }
  if (mode.keep != Keep::sums) products.each(config, mode, rows, visit);
}

void BlockScratch::each(const TransformerConfig& config, const PassMode& mode, int64_t rows, const VisitTensor& visit) {
  const int64_t width = config.d_model, hidden = config.ffn_dim();
  if (mode.keep == Keep::sums) recomputed.each(config, mode, rows, visit);
  visit(false, normed, {rows, width}, mode.type());
  const int64_t elements = mode.keep == Keep::nothing ? std::min(rows, rows_at_a_time) * hidden
                                                      : rows * (std::max(hidden, qkv_dim(config)) + width);
  visit(false, workspace, {elements}, mode.type());
}

void BlockScratch::cut(const TransformerConfig& config, const PassMode& mode, int64_t rows) {
  const int64_t width = config.d_model, hidden = config.ffn_dim(), qkv = qkv_dim(config);
  const auto part = [&](int64_t begin, int64_t rows_of_it, int64_t columns) {
    return workspace.slice(0, begin, begin + rows_of_it * columns).reshape({rows_of_it, columns});
  };
  if (mode.keep == Keep::nothing) {
    activated = part(0, std::min(rows, rows_at_a_time), hidden);
    return;
  }
  activated = dhidden = part(0, rows, hidden);
  dqkv = part(0, rows, qkv);
  gated = part(0, rows, width);
  dattended = dnormed = part(rows * std::max(hidden, qkv), rows, width);
}

void Block::forward(ResidualStream& stream, Pass& pass) const {
  normalize(stream, pass);
  mix(pass);
  attend(pass);
  finish(stream, pass.memory.products_of(layer_).attended, pass);
}

namespace {

/// The last rows of a cache [rows, 2 * head_dim], whose keys and values are the two halves of its rows.
Tensor last_rows(const KvCache& cache, int64_t rows) {
  const core::StateOf<KvCache>& state = core::state_of(cache);
  Tensor found = Tensor::empty({rows, 2 * cache.head_dim()}, cache.dtype());
  const size_t bytes = static_cast<size_t>(cache.head_dim()) * size_of(cache.dtype());
  auto* to = static_cast<std::byte*>(found.raw());
  for (int64_t row = cache.length() - rows; row < cache.length(); ++row, to += 2 * bytes) {
    std::memcpy(to, state.key_rows(0, 0, row), bytes);
    std::memcpy(to + bytes, state.value_rows(0, 0, row), bytes);
  }
  return found;
}

}  // namespace

void Block::mix(Pass& pass) const {
  if (canon_ == nullptr) return;
  const int64_t width = config_.d_model;
  const Tensor normed = pass.memory.scratch.normed.reshape({pass.memory.batch, pass.memory.length, width});
  for (size_t i = 0; i < pass.sequences.session_count(); ++i) {
    const Tensor x = pass.sequences.part(normed, i);
    const Session& session = pass.sequences.session(i);
    Tensor before;
    if (!session.inputs.empty()) {
      KvCache& inputs = session.inputs[static_cast<size_t>(layer_)];
      const int64_t known = std::min<int64_t>(inputs.length(), config_.attention.canon_kernel - 1);
      if (known > 0) before = last_rows(inputs, known).to(x.dtype());
      const Tensor halves = x.reshape({1, x.size(1), 1, width});
      inputs.append(halves.slice(3, 0, width / 2), halves.slice(3, width / 2, width));
    }
    pass.sequences.each({x},
                        [&](std::span<Tensor> sequence) { nn::add_short_conv(canon_->value, before, sequence[0]); });
  }
}

void Block::mix_backward(Pass& pass) const {
  const Shape shape = {pass.memory.batch, pass.memory.length, config_.d_model};
  pass.sequences.each({pass.memory.scratch.normed.reshape(shape), pass.memory.scratch.dnormed.reshape(shape)},
                      [&](std::span<Tensor> sequence) {
                        nn::add_short_conv_backward(canon_->value, sequence[0], sequence[1], canon_->gradient);
                      });
}

void Block::normalize(ResidualStream& stream, Pass& pass) const {
  stream.normalize(norm1_, pass.memory.of(layer_).attention, pass.memory.scratch.normed);
}

void Block::finish(ResidualStream& stream, const Tensor& attended, Pass& pass) const {
  BlockMemory& memory = pass.memory.of(layer_);
  Tensor& normed = pass.memory.scratch.normed;
  if (gate_.weight != nullptr) {
    nn::apply_gate(pass.memory.products_of(layer_).gate, attended, normed);
    out_.forward(normed, stream.branch);
  } else {
    out_.forward(attended, stream.branch);
  }
  if (config_.block.normed_attention) stream.normalize_branch(attention_norm_, memory.attention.statistics);
  stream.add(pass.dropout(config_.block.dropout, layer_, Draw::attention_output));

  stream.normalize(norm2_, memory.feed_forward, normed);
  feed_forward(stream.branch, pass);
  stream.add(pass.dropout(config_.block.dropout, layer_, Draw::feed_forward));
}

void Block::project(Pass& pass, Tensor& qkv) const {
  BlockProducts& products = pass.memory.products_of(layer_);
  qkv_.forward(pass.memory.scratch.normed, products.qkv);
  limit_and_normalize(products);
  qkv.copy_from(products.qkv);
  if (!config_.attention.qk_norm) return;
  nn::set_columns(products.q.y, 0, qkv);
  nn::set_columns(products.k.y, config_.d_model, qkv);
}

void Block::project_keys(Pass& pass, Tensor& keys) const {
  const int64_t first = config_.d_model, last = first + keys.size(1);
  const Tensor bias = qkv_.bias == nullptr ? Tensor() : qkv_.bias->value.slice(0, first, last);
  nn::linear(pass.memory.scratch.normed, qkv_.weight->operand().slice(0, first, last), bias.defined() ? &bias : nullptr,
             keys);
  if (config_.attention.clip_qkv > 0) nn::clamp(keys, static_cast<float>(config_.attention.clip_qkv));
  if (!config_.attention.qk_norm) return;
  normalize_heads(keys, k_norm_, pass.memory.products_of(layer_).k.statistics);
}

void Block::project_gate(Pass& pass) const {
  if (gate_.weight != nullptr) gate_.forward(pass.memory.scratch.normed, pass.memory.products_of(layer_).gate);
}

void Block::backward(ResidualGradient& stream, Pass& pass) const {
  const BlockMemory& memory = pass.memory.of(layer_);
  BlockScratch& scratch = pass.memory.scratch;
  nn::normalize(memory.feed_forward.x, norm2_.parameters(), memory.feed_forward.statistics, scratch.normed);
  feed_forward_backward(stream.dbranch(), pass);
  stream.normalize_backward(scratch.dnormed, norm2_, memory.feed_forward);

  const auto normalize_again = [&] {
    nn::normalize(memory.attention.x, norm1_.parameters(), memory.attention.statistics, scratch.normed);
  };
  normalize_again();
  mix(pass);
  attention_backward(stream.dbranch(), pass);
  if (canon_ != nullptr) {
    normalize_again();
    mix_backward(pass);
  }
  stream.normalize_backward(scratch.dnormed, norm1_, memory.attention);
}

Block::Heads Block::split(const Tensor& qkv, const Pass& pass) const {
  const int64_t heads = config_.attention.heads, kv = config_.key_heads();
  const Tensor all = qkv.reshape({pass.memory.batch, pass.memory.length, heads + 2 * kv, config_.head_dim()});
  return {all.slice(2, 0, heads), all.slice(2, heads, heads + kv), all.slice(2, heads + kv, heads + 2 * kv)};
}

Block::Heads Block::split(const BlockProducts& products, const Pass& pass) const {
  Heads heads = split(products.qkv, pass);
  if (config_.attention.qk_norm) {
    heads.q = products.q.y.reshape(heads.q.shape());
    heads.k = products.k.y.reshape(heads.k.shape());
  }
  return heads;
}

void Block::limit_and_normalize(BlockProducts& products) const {
  if (config_.attention.clip_qkv > 0) nn::clamp(products.qkv, static_cast<float>(config_.attention.clip_qkv));
  if (!config_.attention.qk_norm) return;
  nn::copy_columns(products.qkv, 0, products.q.y);
  nn::copy_columns(products.qkv, config_.d_model, products.k.y);
  normalize_heads(products.q.y, q_norm_, products.q.statistics);
  normalize_heads(products.k.y, k_norm_, products.k.statistics);
}

Tensor Block::rows_of_norm(const Tensor& x) const {
  if (!config_.attention.qk_norm_per_head) return x;
  return x.reshape({x.elements() / config_.head_dim(), config_.head_dim()});
}

void Block::normalize_heads(Tensor& x, const NormLayer& layer, nn::NormStatistics& statistics) const {
  Tensor rows = rows_of_norm(x);
  nn::norm(rows, layer.parameters(), rows, statistics);
}

// A row of n normalized values has at most the norm sqrt(n), and all of it may be in one head.
std::vector<double> Block::query_norms() const {
  constexpr double rounding = 1 + 0x1p-6;  // of values in bfloat16
  const int64_t dim = config_.head_dim();
  const double clamped = config_.attention.clip_qkv > 0 ? config_.attention.clip_qkv : HUGE_VAL;
  std::vector<double> norms(static_cast<size_t>(config_.attention.heads),
                            rounding * clamped * std::sqrt(static_cast<double>(dim)));
  if (!config_.attention.qk_norm) return norms;
  const std::vector<float> weight = q_norm_.weight->value.to_floats();
  const std::vector<float> bias = q_norm_.bias != nullptr ? q_norm_.bias->value.to_floats() : std::vector<float>();
  for (size_t head = 0; head < norms.size(); ++head) {
    double largest = 0, squares = 0;
    for (auto d = head * static_cast<size_t>(dim); d < (head + 1) * static_cast<size_t>(dim); ++d) {
      largest = std::max(largest, std::abs(static_cast<double>(weight[d])));
      if (!bias.empty()) squares += static_cast<double>(bias[d]) * static_cast<double>(bias[d]);
    }
    const int64_t row = config_.attention.qk_norm_per_head ? dim : config_.d_model;
    norms[head] = rounding * (largest * std::sqrt(static_cast<double>(row)) + std::sqrt(squares));
  }
  return norms;
}

void Block::limit_and_normalize_backward(BlockProducts& products, Tensor& dqkv, const Tensor& memory) const {
  if (config_.attention.qk_norm) {
    const auto backward = [&](BlockProducts::Normed& normed, const NormLayer& layer, int64_t first) {
      Tensor x = normed.y;  // the normalized values are not needed any more
      Tensor dy = memory.reshape({memory.elements()}).slice(0, 0, x.elements()).reshape(x.shape());
      nn::copy_columns(products.qkv, first, x);
      nn::copy_columns(dqkv, first, dy);
      Tensor dx = rows_of_norm(dy);
      nn::norm_backward(dx, rows_of_norm(x), layer.parameters(), normed.statistics, dx, &layer.weight->gradient,
                        gradient_of(layer.bias));
      nn::set_columns(dy, first, dqkv);
    };
    backward(products.q, q_norm_, 0);
    backward(products.k, k_norm_, config_.d_model);
  }
  if (config_.attention.clip_qkv > 0) {
    nn::clamp_backward(products.qkv, static_cast<float>(config_.attention.clip_qkv), dqkv);
  }
}

AttentionOptions Block::attention_options(Pass& pass, size_t index, const Tensor& x) const {
  const std::vector<AttentionOptions>& biases = pass.sequences.session(index).biases;
  AttentionOptions options = biases[biases.size() == 1 ? 0 : static_cast<size_t>(layer_)];
  if (!has_positions_) {
    options = {.causal = options.causal, .softmax_scale = options.softmax_scale};
  } else if (x.defined()) {
    positions_.bias->add_input(layer_, x, options);
  }
  options.sliding_window = config_.attention.window_of(layer_);
  if (sinks_ != nullptr) options.sinks = sinks_->value.to_floats();
  options.cu_seqlens_q = options.cu_seqlens_k = pass.sequences.offsets();
  // Keys with less weight than this would be lost in bfloat16 rounding.
  if (pass.memory.mode.precision == Precision::bf16 && options.tolerance > 0) {
    options.tolerance = std::max(options.tolerance, 0x1p-11f);
  }
  if (pass.seed && config_.attention.dropout > 0) {
    options.dropout_p = config_.attention.dropout;
    options.dropout_seed = core::mix(pass.seed->seed, pass.seed->step, pass.seed->part, static_cast<uint64_t>(layer_));
  }
  return options;
}

nn::ScoreScale Block::score_scale(const Session& session) const {
  return {ssmax_->value.to_floats(), session.position, config_.attention.window_of(layer_)};
}

// attended = attention(rotary(qkv(normed)))
void Block::attend(Pass& pass) const {
  const Tensor& normed = pass.memory.scratch.normed;
  BlockProducts& products = pass.memory.products_of(layer_);
  project_gate(pass);
  qkv_.forward(normed, products.qkv);
  limit_and_normalize(products);
  const Heads heads = split(products, pass);
  Tensor attended = products.attended.reshape(heads.q.shape());
  const Tensor x = normed.reshape({pass.memory.batch, pass.memory.length, config_.d_model});
  Sequences& sequences = pass.sequences;
  const auto attend_one = [&](size_t i) {
    const Heads part{sequences.part(heads.q, i), sequences.part(heads.k, i), sequences.part(heads.v, i)};
    attend_session(sequences.part(x, i), part, sequences.part(attended, i), pass, i);
  };
  const size_t count = sequences.session_count();
  if (count == 1) return attend_one(0);
  // Attention of many tokens is divided among the threads. Sequences with few tokens are divided among them instead.
  std::vector<size_t> short_ones;
  for (size_t i = 0; i < count; ++i) {
    const bool is_short = sequences.part(heads.q, i).size(1) <= max_decoded;
    is_short && !pass.on_attention ? short_ones.push_back(i) : attend_one(i);
  }
  core::parallel_for(std::ssize(short_ones), [&](int64_t task) { attend_one(short_ones[static_cast<size_t>(task)]); });
}

void Block::attend_session(const Tensor& x, const Heads& heads, Tensor attended, Pass& pass, size_t index) const {
  const Session& session = pass.sequences.session(index);
  pass.sequences.each({heads.q, heads.k}, [&](std::span<Tensor> sequence) {
    if (!has_positions_) return;
    for (Tensor& part : sequence) positions_.rotation->rotate(part, session.position, session.position_scale);
  });
  if (ssmax_ != nullptr) {
    const nn::ScoreScale scale = score_scale(session);
    pass.sequences.each({heads.q}, [&](std::span<Tensor> sequence) { nn::scale_queries(sequence[0], scale); });
  }
  AttentionOptions options = attention_options(pass, index, x);
  if (pass.on_attention) pass.on_attention(heads.q, heads.k, heads.v, options);
  if (!session.caches.empty()) {
    KvCache& cache = session.caches[static_cast<size_t>(layer_)];
    cache.append(heads.k, heads.v, options.log_decay);
    if (session.position > 0 ||
        session.eviction != nullptr) {  // otherwise the cache contains only the keys that were just appended
      options.log_decay.reset();        // the cache has the gates
      AttentionState state;
      AttentionState* wanted = session.eviction != nullptr ? &state : nullptr;
      const bool few = heads.q.size(1) <= max_decoded || cache.dtype() != heads.q.dtype();
      if (few) {
        attention_decode(heads.q, cache, options, attended, wanted);
      } else {
        cache.own();  // contiguous memory is faster when many queries read it
        cached_attention(heads.q, cache, options, attended, wanted);
      }
      if (wanted != nullptr) session.eviction->attended(layer_, heads.q, cache, options, state.lse);
      return;
    }
  }
  const bool kept = pass.memory.mode.keep != Keep::nothing;
  BlockProducts& products = pass.memory.products_of(layer_);
  if (pass.division.ranks != nullptr) {
    attention_over_ranks(*pass.division.ranks, pass.division.length, heads.q, heads.k, heads.v, options, attended,
                         kept ? &products.divided : nullptr);
    return;
  }
  attention(heads.q, heads.k, heads.v, options, attended, kept ? &products.attention : nullptr);
}

// Computes dnormed and the gradients of branch = out(sigmoid(gate) * attended), or out(attended) without a gate.
void Block::attention_backward(const Tensor& dbranch, Pass& pass) const {
  BlockScratch& scratch = pass.memory.scratch;
  BlockProducts& products = pass.memory.products_of(layer_);
  if (pass.memory.mode.keep == Keep::sums) attend(pass);
  if (gate_.weight != nullptr) {
    Tensor& dgate = products.gate;  // the gate is not needed any more
    out_.backward_to_input(dbranch, scratch.gated, scratch.dattended);
    nn::apply_gate_backward(scratch.dattended, products.gate, products.attended, scratch.dattended, dgate,
                            scratch.gated);
    out_.backward_to_parameters(dbranch, scratch.gated);
  } else {
    out_.backward(dbranch, products.attended, scratch.dattended);
  }
  const Heads heads = split(products, pass);
  Heads dheads = split(scratch.dqkv, pass);
  const Shape& per_head = heads.q.shape();
  const Tensor dout = scratch.dattended.reshape(per_head), out = products.attended.reshape(per_head);
  const Tensor x = scratch.normed.reshape({pass.memory.batch, pass.memory.length, config_.d_model});
  const AttentionOptions options = attention_options(pass, 0, x);
  BiasSums sums = has_positions_ ? positions_.bias->sums(layer_, options) : BiasSums();
  const auto given = [](Tensor& sum) { return sum.defined() ? &sum : nullptr; };
  const AttentionBiasGradients wanted{.dtable = given(sums.dtable),
                                      .dslopes = given(sums.dslopes),
                                      .dsinks = sinks_ != nullptr ? &sinks_->gradient : nullptr,
                                      .dlog_decay = given(sums.dlog_decay)};
  if (pass.division.ranks != nullptr) {
    attention_over_ranks_backward(*pass.division.ranks, pass.division.length, dout, heads.q, heads.k, heads.v, out,
                                  products.divided, options, dheads.q, dheads.k, dheads.v, wanted);
  } else {
    alibi::attention_backward(dout, heads.q, heads.k, heads.v, out, products.attention, options, dheads.q, dheads.k,
                              dheads.v, wanted);
  }
  if (ssmax_ != nullptr) {
    nn::scale_queries_backward(heads.q, score_scale(pass.sequences.together), dheads.q, ssmax_->gradient);
  }
  if (has_positions_) {
    positions_.rotation->rotate_backward(dheads.q, pass.sequences.together.position);
    positions_.rotation->rotate_backward(dheads.k, pass.sequences.together.position);
  }
  limit_and_normalize_backward(products, scratch.dqkv, scratch.dattended);
  qkv_.backward(scratch.dqkv, scratch.normed, scratch.dnormed);
  if (gate_.weight != nullptr) {
    gate_.backward(products.gate, scratch.normed, scratch.gated);
    nn::add(scratch.dnormed, scratch.gated, scratch.dnormed);
  }
  if (has_positions_) positions_.bias->backward(layer_, sums, x, scratch.dnormed);
}

// y = down(dropout(activate(up(normed))))
void Block::feed_forward(Tensor& y, Pass& pass) const {
  const Tensor& normed = pass.memory.scratch.normed;
  Tensor& up = pass.memory.products_of(layer_).up;
  Tensor& activated = pass.memory.scratch.activated;
  const nn::BranchDropout dropout = pass.dropout(config_.block.activation_dropout, layer_, Draw::activation);
  const int64_t rows = normed.size(0), most = up.size(0);  // in training they are equal
  for (int64_t begin = 0; begin < rows; begin += most) {
    const int64_t end = std::min(rows, begin + most);
    Tensor up_part = up.slice(0, 0, end - begin), activated_part = activated.slice(0, 0, end - begin);
    Tensor y_part = y.slice(0, begin, end);
    up_.forward(normed.slice(0, begin, end), up_part);
    nn::activate(config_.block.activation, up_part, activated_part);
    if (dropout.probability > 0) nn::dropout(activated_part, dropout.probability, dropout.random, activated_part);
    down_.forward(activated_part, y_part);
  }
}

void Block::feed_forward_backward(const Tensor& dbranch, Pass& pass) const {
  BlockScratch& scratch = pass.memory.scratch;
  Tensor& up = pass.memory.products_of(layer_).up;
  Tensor& dhidden = scratch.dhidden;
  const nn::BranchDropout dropout = pass.dropout(config_.block.activation_dropout, layer_, Draw::activation);
  if (pass.memory.mode.keep == Keep::sums) up_.forward(scratch.normed, up);
  down_.backward_to_input(dbranch, scratch.activated, dhidden);
  if (dropout.probability > 0) nn::dropout_backward(dhidden, dropout.probability, dropout.random, dhidden);
  // The gradient of `up` reuses the memory of dhidden, and the activated values that of `up`. With a gate, `up` is the
  // wider tensor and the two swap roles.
  const bool gated = nn::is_gated(config_.block.activation);
  Tensor& dup = gated ? up : dhidden;
  Tensor& activated = gated ? dhidden : up;
  nn::activate_backward(config_.block.activation, dhidden, up, dup, &activated);
  if (dropout.probability > 0) nn::dropout(activated, dropout.probability, dropout.random, activated);
  down_.backward_to_parameters(dbranch, activated);
  up_.backward(dup, scratch.normed, scratch.dnormed);
}

}  // namespace alibi::model
