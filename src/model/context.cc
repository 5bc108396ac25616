#include "alibi/context.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "model/context_state.h"
#include "model/position.h"

namespace alibi {
namespace {

/// Enough for products and attention at full speed, few enough that what the layers work in stays small.
constexpr int64_t tokens_at_a_time = 2048;

void check_device(const LanguageModel& model) {
  check(model.device() == Device::cpu, "[context] the model lies on {}; contexts are for models in the CPU's memory",
        name_of(model.device()));
}

}  // namespace

Context::Context(const LanguageModel& model, const ContextOptions& options) : state_(std::make_unique<State>()) {
  const TransformerConfig& config = model.config().transformer;
  check(config.causal, "[context] the model is an encoder; a context needs a causal transformer");
  check_device(model);
  state_->model = &model.state();
  state_->config = config;
  state_->options = options;
  state_->dtype = options.cached.value_or(model.precision() == Precision::bf16 ? DType::bfloat16 : DType::float32);
  state_->begin();
}

void Context::State::begin() {
  caches.clear();
  for (int i = 0; i < config.layers; ++i) caches.emplace_back(1, config.key_heads(), config.head_dim(), dtype);
  if (options.releases()) forgetting = std::make_unique<Forgetting>(config, options, dtype);
  pass.caches = caches;
  pass.forgetting = forgetting.get();
  pass.position = 0;
}

Context::Context(std::unique_ptr<State> state) : state_(std::move(state)) {}
Context::~Context() = default;
Context::Context(Context&&) noexcept = default;
Context& Context::operator=(Context&&) noexcept = default;

int64_t Context::position() const { return state_->pass.position; }
DType Context::dtype() const { return state_->dtype; }

int64_t Context::bytes() const {
  int64_t sum = 0;
  for (const KvCache& cache : state_->caches) sum += cache.bytes();
  return sum;
}

Context Context::fork() const {
  auto copy = std::make_unique<State>();
  copy->model = state_->model;
  copy->config = state_->config;
  copy->options = state_->options;
  copy->dtype = state_->dtype;
  for (const KvCache& cache : state_->caches) copy->caches.push_back(cache.clone());
  if (state_->forgetting) copy->forgetting = std::make_unique<Forgetting>(*state_->forgetting);
  copy->pass.caches = copy->caches;
  copy->pass.forgetting = copy->forgetting.get();
  copy->pass.position = state_->pass.position;
  return Context(std::move(copy));
}

void Context::State::cut(int64_t position) {
  if (position == 0 && forgetting && earliest() == 0) return begin();
  position = std::max(position, earliest());
  for (KvCache& cache : caches) cache.truncate(std::min(cache.length(), position));
  pass.position = position;
}

void Context::rewind(int64_t position) {
  check(position >= 0 && position <= this->position(), "[context] rewound to {}, expected 0 to {}, its position",
        position, this->position());
  if (position == 0 && state_->forgetting) return state_->begin();
  check(position >= state_->earliest(),
        "[context] rewound to {}, but keys were released at {}: it can go back to there, or to the beginning; a fork "
        "made before that keeps them",
        position, state_->earliest());
  state_->cut(position);
}

ReleaseCertificate Context::certificate() const {
  return state_->forgetting ? state_->forgetting->certificate() : ReleaseCertificate();
}

void read(const LanguageModel& model, const Tensor& ids, Context& context, const UseStates& use) {
  Context::State& state = context.state();
  check(&model.state() == state.model, "[context] it was made for another model");
  check_device(model);
  const int64_t begin = state.pass.position, length = ids.size(1);
  check(ids.size(0) == 1, "[context] ids have shape {}, expected a batch of 1", to_string(ids.shape()));
  const TransformerConfig& config = model.config().transformer;
  const std::optional<int64_t> end = end_of_positions(config);
  check(!end || length <= *end - begin,
        "[context] {} positions end at {}, the text goes to {}; no {} model runs past that", name_of(config.position),
        end.value_or(0), begin + length, name_of(config.position));
  const KeepMemory keep;
  state.pass.slope_factor = slope_factor(model, begin + length);
  try {
    Forgetting* const forgetting = state.forgetting.get();
    const int64_t most = forgetting != nullptr ? forgetting->most_tokens() : tokens_at_a_time;
    for (int64_t first = 0, tokens = 0; first < length; first += tokens) {
      tokens = std::min(most, length - first);
      if (forgetting != nullptr) forgetting->make_room(state.caches, tokens);
      const Tensor piece = Tensor::view(ids.data<int32_t>() + first, {1, tokens}, DType::int32);
      const Tensor states = hidden(model, piece, state.pass);
      use(first, states);
      state.pass.position += tokens;
    }
  } catch (...) {
    state.cut(begin);
    throw;
  }
}

}  // namespace alibi
