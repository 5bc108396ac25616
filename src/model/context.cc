#include "alibi/context.h"

#include <algorithm>
#include <utility>

#include "attention/decode/kv_cache_state.h"
#include "core/check.h"
#include "model/context_state.h"
#include "model/position.h"
#include "model/transformer_state.h"

namespace alibi {
namespace {

/// Enough tokens for matrix products and attention at full speed, and few enough to keep the temporary memory small.
constexpr int64_t tokens_at_a_time = 2048;

/// The smaller one of the given bound and that of the model's own norm or clamp of queries, for all heads of all
/// layers.
std::vector<double> query_norms_of(const LanguageModel& model, const ContextOptions& options) {
  std::vector<double> norms;
  for (const model::Block& block : core::state_of(model::transformer_of(model)).blocks) {
    for (const double norm : block.query_norms())
      norms.push_back(std::min(norm, options.query_norm.value_or(HUGE_VAL)));
  }
  if (std::isinf(norms.front())) norms.clear();
  return norms;
}

}  // namespace

Context::Context(const LanguageModel& model, const ContextOptions& options) : state_(std::make_unique<State>()) {
  const TransformerConfig& config = model.config().transformer;
  check(config.attention.causal, "[context] the model is an encoder; a context needs a causal transformer");
  state_->model = &core::state_of(model);
  state_->config = config;
  state_->options = options;
  state_->end = model::end_of_positions(config);
  state_->input_dtype = model.precision() == Precision::bf16 ? DType::bfloat16 : DType::float32;
  state_->dtype = options.cached.value_or(state_->input_dtype);
  check_usage(!options.query_norm || *options.query_norm > 0, "[context] query_norm is {}, expected above 0",
              options.query_norm.value_or(0));
  check_usage(!options.query_norm || options.evicts(),
              "[context] query_norm is {}, expected it to be unset without a limit that evicts keys (memory or "
              "eviction_tolerance)",
              options.query_norm.value_or(0));
  if (options.evicts() && config.layers > 0) state_->query_norms = query_norms_of(model, options);
  state_->begin();
}

model::Session Context::State::session_at(int64_t position) {
  const auto layers = static_cast<size_t>(config.layers);
  return {.position = position,
          .caches = std::span(caches).first(layers),
          .inputs = std::span(caches).subspan(layers),
          .eviction = eviction.get()};
}

void Context::State::begin() {
  caches.clear();
  for (int i = 0; i < config.layers; ++i) caches.emplace_back(1, config.key_heads(), config.head_dim(), dtype);
  std::optional<int64_t> limit = options.memory;
  if (config.attention.canon_kernel > 0) {
    for (int i = 0; i < config.layers; ++i) caches.emplace_back(1, 1, config.d_model / 2, input_dtype);
    using Cache = core::StateOf<KvCache>;
    const auto of_keys = static_cast<double>(config.key_heads() * Cache::bytes_of_row(config.head_dim(), dtype));
    const auto of_inputs = static_cast<double>(Cache::bytes_of_row(config.d_model / 2, input_dtype));
    if (limit) limit = static_cast<int64_t>(static_cast<double>(*limit) * of_keys / (of_keys + of_inputs));
  }
  if (options.evicts()) {
    const model::Positions positions(config);
    const AttentionConfig& attention = config.attention;
    check_usage(attention.nope_layer_interval == 0 && attention.full_attention_interval == 0,
                "[context] nope_layer_interval is {} and full_attention_interval is {}, expected 0 for a limit that "
                "evicts keys, which needs a bound on what far keys weigh, or one window, in all layers",
                attention.nope_layer_interval, attention.full_attention_interval);
    check_usage(attention.ssmax == 0,
                "[context] ssmax is {}, expected 0 for a limit that evicts keys: later scores grow", attention.ssmax);
    check_usage(!options.query_norm || !positions.bias->bounds_far_keys(),
                "[context] query_norm is set for {} positions, expected it to be unset, because it is for gates",
                name_of(config.position));
    check_usage(
        positions.bias->bounds_evicted_keys(),
        "[context] {} positions put no bound on what far keys weigh, so no keys can be evicted; alibi and gates "
        "have one",
        name_of(config.position));
    eviction = std::make_unique<kernels::Eviction>(kernels::EvictionOptions{.layers = config.layers,
                                                                            .heads = config.attention.heads,
                                                                            .kv_heads = config.key_heads(),
                                                                            .head_dim = config.head_dim(),
                                                                            .window = config.attention.sliding_window,
                                                                            .dtype = dtype,
                                                                            .memory = limit,
                                                                            .tolerance = options.eviction_tolerance,
                                                                            .query_norms = query_norms,
                                                                            .exact = options.exact});
  }
  session = session_at(0);
  window_evicted_at = 0;
}

void Context::State::make_room(int64_t tokens) {
  if (caches.empty()) return;
  const int64_t position = session.position, begin = position - config.attention.sliding_window + 1;
  if (eviction) {
    eviction->make_room(session.caches, tokens);
    return evict_inputs(tokens);
  }
  if (config.attention.window_of(0) == 0 || begin <= 0 || caches.front().capacity() >= position + tokens) return;
  // No later token sees the earlier keys. There is room for half of the kept keys more, so that each key is moved only
  // a few times.
  const std::vector<int64_t> begins(static_cast<size_t>(config.key_heads()), begin);
  const int64_t room = std::max(tokens, std::min(config.attention.sliding_window / 2, tokens_at_a_time));
  for (int layer = 0; layer < config.layers; ++layer) {
    if (config.attention.window_of(layer) > 0) session.caches[static_cast<size_t>(layer)].evict(begins, room);
  }
  window_evicted_at = position;
  evict_inputs(tokens);
}

void Context::State::evict_inputs(int64_t tokens) {
  const int64_t position = session.position, taps = config.attention.canon_kernel;
  const int64_t needed = std::max<int64_t>(0, earliest() - taps + 1);
  const int64_t room = std::max(tokens, caches.front().capacity() - position);
  for (KvCache& inputs : session.inputs) {
    if (inputs.capacity() < position + tokens) inputs.evict(std::span(&needed, 1), room);
  }
}

Context::Context(std::unique_ptr<State> state) : state_(std::move(state)) {}
Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

int64_t Context::position() const { return state_->session.position; }
DType Context::dtype() const { return state_->dtype; }

int64_t Context::bytes() const {
  int64_t sum = 0;
  for (const KvCache& cache : state_->caches) sum += cache.bytes();
  return sum;
}

int64_t Context::shared_bytes() const {
  int64_t sum = 0;
  for (const KvCache& cache : state_->caches) sum += cache.shared_bytes();
  return sum;
}

Context Context::fork() const {
  auto copy = std::make_unique<State>();
  copy->model = state_->model;
  copy->config = state_->config;
  copy->options = state_->options;
  copy->dtype = state_->dtype;
  copy->input_dtype = state_->input_dtype;
  copy->end = state_->end;
  copy->query_norms = state_->query_norms;
  for (const KvCache& cache : state_->caches) copy->caches.push_back(cache.fork());
  if (state_->eviction) copy->eviction = std::make_unique<kernels::Eviction>(*state_->eviction);
  copy->session = copy->session_at(position());
  copy->window_evicted_at = state_->window_evicted_at;
  return Context(std::move(copy));
}

void Context::State::cut(int64_t position) {
  if (position == 0 && eviction && earliest() == 0) return begin();
  position = std::max(position, earliest());
  for (KvCache& cache : caches) cache.truncate(std::min(cache.length(), position));
  session.position = position;
}

void Context::rewind(int64_t position) {
  check(position >= 0 && position <= this->position(), "[context] rewound to {}, expected 0 to {}, its position",
        position, this->position());
  if (position == 0 && (state_->eviction || state_->earliest() > 0)) return state_->begin();
  check(position >= state_->earliest(),
        "[context] rewound to {}, but keys were evicted at {}: it can go back to there, or to the beginning; a fork "
        "made before that keeps them",
        position, state_->earliest());
  state_->cut(position);
}

EvictionCertificate Context::certificate() const {
  EvictionCertificate certificate = state_->eviction ? state_->eviction->certificate() : EvictionCertificate();
  for (const KvCache& cache : state_->session.caches) {
    for (int64_t h = 0; h < cache.kv_heads(); ++h) certificate.kept += cache.length() - cache.begin(h);
  }
  return certificate;
}

namespace {

/// What several contexts read together. If it is not complete at the end, the contexts return to where they were.
class Reading {
 public:
  Reading(const LanguageModel& model, model::PassMemory& memory) : model_(model), memory_(memory) {
    pass_.memory = std::exchange(memory, {});
  }
  ~Reading() {
    memory_ = std::move(pass_.memory);
    for (size_t i = 0; i < states_.size() && !complete_; ++i) states_[i]->cut(begins_[i]);
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  /// The context will read this number of tokens, in one or more passes.
  void add(Context& context, int64_t tokens) {
    const TransformerConfig& config = model_.config().transformer;
    core::StateOf<Context>& state = core::state_of(context);
    check(&core::state_of(model_) == state.model, "[context] it was made for another model");
    const int64_t begin = state.session.position;
    check(!state.end || tokens <= *state.end - begin,
          "[context] {} positions end at {}, the text goes to {}; no {} model runs past that", name_of(config.position),
          state.end.value_or(0), begin + tokens, name_of(config.position));
    // The keys in the cache were rotated for a shorter text.
    check_usage(
        config.position.rotation.empty() || !model_.interpolation().dynamic || begin == 0,
        "[context] dynamic interpolation of rotary positions needs the whole text in one call, and {} tokens came "
        "before; give a factor",
        begin);
    check(std::find(states_.begin(), states_.end(), &state) == states_.end(),
          "[context] a context is given twice; each row needs one of its own, which fork() makes");
    states_.push_back(&state);
    begins_.push_back(begin);
    pass_.sequences.sessions.push_back(&state.session);
    state.session.position_scale = model::position_scale(model_, begin + tokens);
  }

  /// One pass over the next tokens of all contexts: rows(i) for the context i. Returns the final states [tokens of all
  /// rows, d_model].
  template <class Rows>
  Tensor pass(const Rows& rows) {
    std::vector<int32_t> ids;
    pass_.sequences.cu_seqlens = {0};
    for (size_t i = 0; i < states_.size(); ++i) {
      const std::span<const int32_t> row = rows(i);
      states_[i]->make_room(std::ssize(row));
      ids.insert(ids.end(), row.begin(), row.end());
      pass_.sequences.cu_seqlens.push_back(static_cast<int32_t>(ids.size()));
    }
    const Tensor states = model::hidden(model_, Tensor::from(ids, {1, std::ssize(ids)}), pass_);
    for (size_t i = 0; i < states_.size(); ++i) states_[i]->session.position += std::ssize(rows(i));
    return states.reshape({std::ssize(ids), states.size(2)});
  }
  void complete() { complete_ = true; }

 private:
  const LanguageModel& model_;
  model::PassMemory& memory_;  // the caller's
  model::Pass pass_;
  std::vector<core::StateOf<Context>*> states_;
  std::vector<int64_t> begins_;
  bool complete_ = false;
};

}  // namespace

int64_t model::max_tokens(const Context& context) {
  const core::StateOf<Context>& state = core::state_of(context);
  return state.eviction ? std::min(tokens_at_a_time, state.eviction->max_tokens()) : tokens_at_a_time;
}

void model::read(const LanguageModel& model, const Tensor& ids, std::span<Context* const> contexts,
                 const model::UseStates& use) {
  const int64_t batch = ids.size(0), length = ids.size(1), width = model.config().transformer.d_model;
  check(batch == std::ssize(contexts) && batch > 0,
        "[context] ids have shape {}, expected a row for each of {} contexts", to_string(ids.shape()), contexts.size());
  const core::KeepMemory keep;
  Reading reading(model, core::state_of(*contexts.front()).memory);
  int64_t most = std::max<int64_t>(1, tokens_at_a_time / batch);
  for (Context* const context : contexts) {
    reading.add(*context, length);
    most = std::min(most, max_tokens(*context));
  }
  const std::span<const int32_t> all(ids.data<int32_t>(), static_cast<size_t>(batch * length));
  for (int64_t first = 0, tokens = 0; first < length; first += tokens) {
    tokens = std::min(most, length - first);
    const Tensor states = reading.pass([&](size_t row) {
      return all.subspan(row * static_cast<size_t>(length) + static_cast<size_t>(first), static_cast<size_t>(tokens));
    });
    use(first, states.reshape({batch, tokens, width}));
  }
  reading.complete();
}

Tensor model::read_ragged(const LanguageModel& model, std::span<const RaggedRow> rows, PassMemory& memory) {
  Reading reading(model, memory);
  for (const auto& [context, ids] : rows) {
    const int64_t tokens = std::ssize(ids), most = max_tokens(*context);
    check(tokens >= 1 && tokens <= most, "[context] a row of a pass has {} tokens, expected 1 to {}", tokens, most);
    reading.add(*context, tokens);
  }
  Tensor states = reading.pass([&](size_t row) { return rows[row].ids; });
  reading.complete();
  return states;
}

}  // namespace alibi
