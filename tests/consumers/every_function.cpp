// Calls every public function once, from outside of the source tree: what is declared can be linked, and what is needed
// to call it can be included. scripts/test/installed sees whether one is missing here.
#include <alibi/alibi.h>
#include <alibi/c.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace alibi;

/// Whether a program can name or reach the state that only the library knows.
template <class Public>
concept ShowsState = requires {
  typename Public::State;
}
|| requires(Public object) { object.state_; };
static_assert(!ShowsState<KernelState> && !ShowsState<KvCache> && !ShowsState<Context> && !ShowsState<LanguageModel> &&
              !ShowsState<Transformer>);

int failures = 0;
void expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  ++failures;
}

struct Folder {
  Folder() : path(std::filesystem::temp_directory_path() / "alibi-every-function.XXXXXX") {
    std::string name = path.string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

void runtime() {
  set_threads(threads());
  set_isa(isa());
  expect(name_of(best_isa()) != nullptr && !available_isas().empty() && !cpu_name().empty(), "there is a machine");
  reset_peak_tensor_bytes();
  reset_peak_resident_bytes();
  expect(tensor_bytes() >= 0 && peak_tensor_bytes() >= 0 && peak_resident_bytes() >= 0, "memory is counted");
}

void tensors() {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> ids = {1, 2, 3};
  Tensor a = Tensor::from(values, {2, 3}), b({2, 3}, DType::float32, Device::cpu);
  b.copy_from(a);
  a.fill(0.5f);
  const Tensor view = Tensor::view(b.raw(), {3, 2});
  expect(b.reshape({-1}).size(0) == 6 && view.stride(0) == 2 && view.elements() == 6 && view.contiguous(), "views");
  expect(b.slice(1, 1, 3).to_floats() == std::vector<float>{2, 3, 5, 6}, "slices");
  expect(Tensor::from(ids, {3}).to_ints() == ids && Tensor::from(ids, {3}).data<int32_t>()[0] == 1, "ids");
  const Tensor halves = b.to(DType::bfloat16);
  expect(b.to(Device::cpu).raw() == b.raw() && std::string(name_of(b.device())) == "cpu", "devices");
  expect(static_cast<float>(halves.data<bfloat16>()[1]) == 2 && static_cast<float>(bfloat16(3.0f)) == 3, "bfloat16");
  expect(static_cast<float>(b.to(DType::float16).data<float16>()[1]) == 2 && static_cast<float>(float16(3.0f)) == 3,
         "float16");
  int place = 0;
  const UseStream use(&place);
  expect(stream() == &place, "streams");
  expect(to_string(b.shape()) == "[2, 3]" && size_of(DType::int32) == 4 && name_of(b.dtype()) != nullptr, "names");
  expect(b.data<float>()[5] == 6 && Tensor::empty({4}).bytes() == 16, "data");
  Tensor blocks({2}, DType::q8_0);
  blocks.data<q8_block>()[1].values[0] = 3;
  const auto owner = std::make_shared<Tensor>(blocks);
  const Tensor owned = Tensor::view(owner, blocks.raw(), {2}, DType::q8_0);
  expect(owned.data<q8_block>()[1].values[0] == 3 && numbers_in(owned.dtype()) == 32, "blocks of q8_0");
}

void attend() {
  const Tensor q = Tensor::empty({1, 4, 2, 8});
  Tensor k = Tensor::empty({1, 6, 2, 8}), v = Tensor::empty({1, 6, 2, 8});
  for (Tensor t : {q, k, v}) t.fill(0.25f);
  AttentionOptions options;
  options.alibi_slopes = slopes(2);
  AttentionState state;
  Tensor out = Tensor::empty(q.shape());
  attention(q, k, v, options, out, &state);
  expect(attention(q, k, v, options).to_floats() == out.to_floats(), "attention");
  expect(count_blocks(state).blocks_total == state.stats.blocks_total, "blocks of a call");
  KernelState kept = KernelState::restore(state.kernel.saved_lse(), state.kernel.saved_blocks());
  expect(KernelState::saved_words(1, 4, 2, options) == kept.saved_blocks().elements(), "states are kept");
  bool refused = false;
  try {
    KernelState::in_memory(kept.saved_lse(), kept.saved_blocks());
  } catch (const Error&) {
    refused = true;
  }
  expect(refused, "memory of a GPU's state is not on the CPU");
  check_attention(q, k, v, options, out);
  const KernelState copy(kept);
  state.kernel = copy;
  Tensor dq = Tensor::empty(q.shape()), dk = Tensor::empty(k.shape()), dv = Tensor::empty(v.shape());
  attention_backward(out, q, k, v, out, state, options, dq, dk, dv);
  std::vector<double> expected;
  attention_reference(q, k, v, options, expected);
  expect(std::abs(expected[0] - 0.25) < 1e-6, "the reference");
  AttentionReferenceGradients gradients;
  attention_backward_reference(out, q, k, v, options, gradients);
  Tensor lse = state.lse.clone();
  merge_attention(out, state.lse, out, state.lse, out, lse);
  expect(relative_position_bucket(3, true, 32, 128) == 3, "buckets");

  append_keys(k.slice(1, 0, 1), v.slice(1, 0, 1), {5}, std::nullopt, k, v);
  expect(k.to_floats()[0] == k.to_floats()[5 * 2 * 8], "keys are appended");

  AttentionPositionsOptions spatial;
  spatial.alibi_slopes = slopes(2);
  const AttentionPositions points = {.q = Tensor({1, 4, 2}), .k = Tensor({1, 6, 2})};
  AttentionPositionsState spatial_state;
  attention_positions(q, k, v, points, spatial, out, &spatial_state);
  expect(attention_positions(q, k, v, points, spatial).to_floats() == out.to_floats(), "attention with positions");
  expect(AttentionPositionsState::words(1, 4, 2, spatial) == spatial_state.stops.elements(), "what it stores");
  attention_positions_backward(out, q, k, v, out, points, spatial_state, spatial, dq, dk, dv);
  attention_positions_reference(q, k, v, points, spatial, expected);
  expect(std::abs(expected[0] - 0.25) < 1e-6, "the reference with positions");
  attention_positions_backward_reference(out, q, k, v, points, spatial, gradients);

  const SequenceRanks alone;
  const SequenceShard shard = sequence_shard(4, 0, 1);
  expect(shard.first == 0 && shard.rows == 4, "one rank has all rows");
  AttentionOptions whole;
  whole.alibi_slopes = slopes(2);
  SequenceAttentionState of_rank;
  attention_over_ranks(alone, 4, q, q, q, whole, out, &of_rank);
  expect(attention(q, q, q, whole).to_floats() == out.to_floats(), "attention over ranks");
  Tensor dk_of_rank = Tensor::empty(q.shape()), dv_of_rank = Tensor::empty(q.shape());
  attention_over_ranks_backward(alone, 4, out, q, q, q, out, of_rank, whole, dq, dk_of_rank, dv_of_rank);

  KvCache cache(1, 2, 8);
  cache.reserve(10);
  cache.append(k, v);
  KvCache other = cache.clone();
  KvCache moved(std::move(other));
  cache = std::move(moved);
  KvCache fork = cache.fork();
  fork.own();
  expect(fork.length() == 6 && fork.shared_bytes() == 0, "forks");
  cache.truncate(5);
  expect(cache.batch() == 1 && cache.kv_heads() == 2 && cache.head_dim() == 8 && cache.dtype() == DType::float32 &&
             cache.device() == Device::cpu && cache.length() == 5 && cache.capacity() >= 10 && cache.bytes() > 0,
         "the cache");
  expect(cache.keys().size(1) == 5 && cache.values().size(1) == 5, "views of the cache");
  attention_decode(q, cache, options, out);
  expect(attention_decode(q, cache, options).to_floats() == out.to_floats(), "decoding");
  Tensor again(out.shape());
  AttentionState of_cache;
  cached_attention(q, cache, options, again, &of_cache);
  const std::vector<int64_t> begins = {0, 5};
  cache.evict(begins, 3);
  expect(cache.begin(1) == 0 && evicted_share(q, cache, options, of_cache.lse) == 0, "a block that is needed stays");
  expect(score_error(q, cache, options) == 0, "a cache in float32 is not rounded");
  KvCache gated(1, 2, 8);
  gated.append(k, v, Tensor({1, k.size(1), 2}));
  const std::vector<double> norms = {1, 1};
  expect(gated.evict_negligible(0.1, norms, options, 0) == 0, "a few keys with gates stay");
}

void from_c() {
  std::vector<float> data(3 * 16, 0.5f), lse(4), kernel_lse(4);
  const auto tensor = [&](int part) {
    return alibi_tensor{data.data() + 16 * part, ALIBI_FLOAT32, {1, 4, 1, 4}, {0, 0, 0, 0}};
  };
  const alibi_tensor q = tensor(0), out = tensor(1), gradient = tensor(2);
  std::vector<float> more(32);
  const alibi_tensor dk{more.data(), ALIBI_FLOAT32, {1, 4, 1, 4}, {0, 0, 0, 0}};
  const alibi_tensor dv{more.data() + 16, ALIBI_FLOAT32, {1, 4, 1, 4}, {0, 0, 0, 0}};
  const auto ok = [](alibi_status status) { expect(status == ALIBI_OK, alibi_last_error()); };
  float slope = 0;
  ok(alibi_slopes(1, 8, &slope));
  ok(alibi_set_threads(threads()));
  alibi_attention_options options = alibi_attention_options_default();
  alibi_attention_state* state = nullptr;
  ok(alibi_attention_state_create(&state));
  ok(alibi_attention(&q, &q, &q, &options, &out, state));
  size_t words = 0;
  int64_t visited = 0, total = 0;
  ok(alibi_attention_state_words(&q, &options, &words));
  std::vector<int32_t> blocks(words);
  ok(alibi_attention_state_lse(state, lse.data(), 4));
  ok(alibi_attention_state_blocks(state, &visited, &total));
  ok(alibi_attention_state_save(state, lse.data(), kernel_lse.data(), 4, blocks.data(), words));
  ok(alibi_attention_state_restore(state, &q, lse.data(), kernel_lse.data(), blocks.data(), words));
  ok(alibi_attention_backward(&out, &q, &q, &q, &out, state, &options, &gradient, &dk, &dv, nullptr, nullptr, nullptr,
                              nullptr));
  ok(alibi_attention_merge(&out, lse.data(), &out, lse.data(), &out, lse.data()));
  const int32_t length = 0;
  ok(alibi_append_keys(&q, &q, &length, 1, nullptr, 0, &dk, &dv));
  expect(more.front() == 0.5f && more.back() == 0.5f, "keys are appended");
  const std::vector<float> points(8);
  alibi_positions positions = alibi_positions_default();
  positions.q = points.data();
  ok(alibi_attention_positions(&q, &q, &q, &positions, &options, &out, state));
  ok(alibi_attention_positions_backward(&out, &q, &q, &q, &out, &positions, state, &options, &gradient, &dk, &dv,
                                        nullptr));
  alibi_attention_state_destroy(state);
  alibi_kv_cache* cache = nullptr;
  ok(alibi_kv_cache_create(1, 1, 4, ALIBI_FLOAT32, &cache));
  ok(alibi_kv_cache_append(cache, &q, &q));
  expect(alibi_kv_cache_append_gated(cache, &q, &q, nullptr, 0) != ALIBI_OK, "no gates beside keys without gates");
  ok(alibi_kv_cache_truncate(cache, 4));
  expect(alibi_kv_cache_length(cache) == 4, "the cache's length");
  ok(alibi_attention_decode(&q, cache, &options, &out, nullptr));
  alibi_kv_cache_destroy(cache);
  ok(alibi_kv_cache_create_on(1, 1, 4, ALIBI_BFLOAT16, ALIBI_DEVICE_CPU, nullptr, &cache));
  alibi_kv_cache_destroy(cache);
  expect(std::string(alibi_version()) == version, "the version");
}

void names() {
  expect(position_from(name_of(Position::rotary + Position::alibi)) == Position::alibi + Position::rotary &&
             position_names().back() == "none",
         "positions");
  expect(activation_from(name_of(Activation::gelu)) == Activation::gelu, "activations");
  expect(norm_from(name_of(Norm::rms_norm)) == Norm::rms_norm, "norms");
  expect(bidirectional_from(name_of(Bidirectional::symmetric)) == Bidirectional::symmetric, "directions");
  expect(precision_from(name_of(Precision::f32)) == Precision::f32, "precisions");
  expect(slope_training_from(name_of(SlopeTraining::learned)) == SlopeTraining::learned, "training of slopes");
  expect(weight_type_from("q8_0") == DType::q8_0, "types of weights");
  expect(precision_from("auto") == best_precision() && !why_best_precision().empty(), "the best precision");
  expect(optimizer_from(name_of(Optimizer::nag)) == Optimizer::nag, "optimizers");
  expect(schedule_from(name_of(ScheduleKind::cosine)) == ScheduleKind::cosine, "schedules");
}

TransformerConfig small() {
  TransformerConfig config;
  config.layers = 1;
  config.d_model = 16;
  config.attention.heads = 2;
  return config;
}

void transformer() {
  const TransformerConfig config = small();
  config.validate();
  expect(config.parameter_count() > 0 && config.position_parameter_count() == 0, "counts");
  Transformer made(config, 1);
  Transformer model(std::move(made));
  made = Transformer(config, 2);
  Tensor x({1, 4, 16});
  x.fill(1);
  expect(model(x).shape() == x.shape() && model.config().layers == 1, "inference");
  expect(model.slopes().front() == slopes(2), "slopes");
  model.set_precision(Precision::f32);
  model.set_recompute(model.precision() == Precision::bf16);
  model.zero_gradients();
  model.weights_changed();
  const Tensor y = model.forward(x, {});
  expect(model.backward(y).shape() == x.shape(), "training");
  model.release_activations();
  expect(model.parameters().size() == std::as_const(model).parameters().size(), "parameters");
}

struct OwnTokenizer : ByteTokenizer {
  std::string decode_known(std::span<const int32_t> ids, const DecodeOptions* options) const override {
    return "own: " + ByteTokenizer::decode_known(ids, options);
  }
};

std::shared_ptr<const Tokenizer> tokenizer(const std::filesystem::path& folder) {
  const ByteTokenizer bytes;
  bytes.save(folder);
  expect(bytes.decode(bytes.encode("text")) == "text" && bytes.fingerprint() != 0, "bytes");
  expect(bytes.decode(bytes.encode("text", EncodeOptions()), DecodeOptions()) == "text", "bytes with options");
  expect(OwnTokenizer().decode(bytes.encode("text")) == "own: text", "a tokenizer of a program");
  expect(bytes.splits_at_lines(), "bytes may be encoded in parts");
  expect(bytes.encode_prompt("a").size() == 2, "bytes of a prompt");
  try {
    bytes.encode_pair("one", "two");
    expect(false, "bytes encode no pairs");
  } catch (const UsageError&) {
  }
  expect(make_tokenizer({.kind = "words"}, std::vector<std::string>{"a b a"})->kind() == "words", "words");
  return Tokenizer::load(folder);
}

void encoders(LanguageModelConfig config, const std::filesystem::path& folder) {
  config.transformer.attention.causal = false;
  LanguageModel(with_vocab_size(config, 257)).save(folder / "encoder");
  EncoderModel predicting = EncoderModel::load(folder / "encoder");
  predicting.model().set_precision(Precision::f32);
  const std::vector<std::string> texts{"a text", "another"};
  expect(std::as_const(predicting).model().config().vocab_size == 258, "the encoder's model");
  expect(predicting.embed(texts).size(0) == 2 && predicting.labels() == 0, "vectors of texts of an encoder");

  config.transformer.head.predicts = false;
  config.transformer.head.labels = 1;
  const EncoderModel classifier{LanguageModel(config)};
  const std::vector<EncoderInput> inputs{classifier.encode("a text", 4), {.ids = {1, 2}}};
  int64_t tokens = 0;
  classifier.hidden(inputs, [&](int64_t, const Tensor& states) { tokens += states.size(0); });
  expect(tokens == 6 && classifier.hidden(inputs[1]).size(0) == 2, "states of an encoder");
  expect(classifier.embed_inputs(inputs).size(0) == 2 && classifier.logits(inputs).size(1) == 1,
         "outputs of a classifier");
  try {  // the byte tokenizer encodes no pairs
    classifier.rerank("a", texts, classifier.encode_pair("a", "b").pooled_from);
    expect(false, "pairs of texts are refused");
  } catch (const UsageError&) {
  }
}

void likelihoods(const LanguageModel& model) {
  const std::vector<Continuation> texts = {{.ids = {1, 2, 3}, .targets = 2}, {.ids = {4, 5}}};
  expect(loglikelihoods(model, texts).at(1).sum < 0, "log-likelihoods");
  const std::vector<int32_t> ids = {1, 2, 3, 4, 5};
  expect(rolling_windows(ids, 0, 4).size() == 2, "rolling windows");
  const std::vector<std::string> documents = {"a text that is scored"};
  const RollingEvaluation rolling = evaluate_rolling(model, documents, {.length = 16});
  expect(rolling.nll() > 0 && rolling.perplexity() > 1 && rolling.word_perplexity() > 1 &&
             rolling.byte_perplexity() > 1 && rolling.bits_per_byte() > 0 && rolling.tokens_per_second() > 0,
         "the harness's perplexity");
  const ChunkEvaluation chunks = evaluate_chunks(model, std::string(200, 'a') + " b c d", {.length = 8});
  expect(
      chunks.nll() > 0 && chunks.perplexity() > 1 && chunks.perplexity_error() >= 0 && chunks.tokens_per_second() > 0,
      "llama-perplexity's perplexity");
}

void engine(const LanguageModel& model) {
  Engine made(model, {.slots = 2, .step_tokens = 32, .chunk_tokens = 8});
  EngineRequest request{.prompt = {1, 2}};
  request.options.max_tokens = 3;
  const Engine::Handle handle = made.submit(request);
  expect(handle.wait().samples.size() == 1 && handle.wait_for(1), "a request");
  handle.cancel();
  expect(made.stats().requests == 1 && &made.model() == &model && made.options().slots == 2, "an engine");
  expect(!made.max_tokens().has_value(), "texts without a limit");
  made.close();
}

void language_model(const std::filesystem::path& folder) {
  expect(!preset_names().empty(), "presets");
  LanguageModelConfig config = with_vocab_size(with_dropout(with_position(preset("tiny"), Position::alibi, 8), 0), 257);
  config.transformer = small();
  config.validate();
  expect(config.parameter_count() > 0 && config.bands().size() == 1, "the configuration");
  LanguageModel made(config, 3, tokenizer(folder));
  LanguageModel model(std::move(made));
  model.to_float32();
  expect(model.weight_bytes() == 4 * model.parameter_count(), "bytes of the weights");
  expect(model.origin() == nullptr, "origin");
  made = LanguageModel(config);
  const std::vector<int32_t> values = {1, 2, 3, 4};
  const Tensor ids = Tensor::from(values, {1, 4});
  expect(model.hidden(ids).size(2) == 16 && model.logits(ids).size(2) == 257, "inference");
  expect(model.logits(ids, ids).size(2) == 257 && model.has_tokenizer(), "a batch with padding");
  expect(model.next_logits(ids).size(1) == 257 && model.nll(ids, ids).size() == 4, "scores");
  likelihoods(model);
  engine(model);
  model.set_precision(Precision::f32);
  model.set_recompute(model.precision() == Precision::bf16);
  Context fresh(model, {DType::float32});
  Context context(std::move(fresh));
  expect(model.hidden(ids, context).shape() == model.hidden(ids).shape(), "states after a context");
  Context fork = context.fork();
  expect(fork.shared_bytes() == 0, "less than a block is not shared");
  fresh = std::move(fork);
  fresh.rewind(2);
  expect(model.next_logits(ids, context).size(1) == 257 && model.nll(ids, ids, fresh).size() == 4, "contexts");
  expect(context.position() == 8 && fresh.position() == 6 && context.dtype() == DType::float32 && fresh.bytes() > 0,
         "what contexts know");
  const std::vector<Context*> both = {&context, &fresh};  // at different places
  const Tensor next = Tensor::from(std::vector<int32_t>{1, 2}, {2, 1});
  expect(model.hidden(next, both).size(0) == 2 && model.next_logits(next, both).size(1) == 257 &&
             model.nll(next, next, both).size() == 2 && context.position() == 11 && fresh.position() == 9,
         "texts that are read together");
  expect(context.certificate().keys == 0 && Context(model, {.memory = 1 << 20}).certificate().worst == 0,
         "what contexts evict");
  model.zero_gradients();
  expect(model.accumulate_gradients(ids, ids, 1, {}) > 0, "gradients");
  model.weights_changed();
  model.release_training_memory();
  model.set_train_length(8);
  expect(model.parameters().size() == std::as_const(model).parameters().size() && model.parameter_count() > 0,
         "parameters");

  std::vector<int32_t> text = model.tokenizer().encode(std::string(600, 'x'));
  TrainOptions options = training_defaults("tiny");
  options.train_length = 8;
  options.train_tokens = 256;
  options.batch_tokens = options.micro_batch_tokens = 64;
  options.validate();
  options.check_text(static_cast<int64_t>(text.size()));
  const std::vector<std::string> names = {"seed", "layers"};
  ModelOptions model_options;
  set_options(
      options, model_options, names,
      [](const std::string& name, const OptionValue&) {
        return name == "seed" ? OptionValue(uint64_t{3}) : OptionValue(int64_t{2});
      },
      "train");
  expect(options.seed == 3 && *model_options.find("layers") == OptionValue(int64_t{2}), "options by name");
  options.precision = Precision::f32;
  expect(enum_value<Optimizer>(enum_name(Optimizer::nag)) == Optimizer::nag && !enum_list<Norm>().empty(), "names");
  expect(options.steps() == 4 && options.schedule().at(0) > 0 && paper_recipe().steps() > 0, "the plan");
  expect(plan_training(config, options).bytes() > 0, "the plan's memory");
  expect(estimate_seconds(config, options) > 0 && training_flops_per_token(config, 8) > 0, "the plan's time");
  train(model, text, options);
  TrainRun run;
  run.folder = folder / "run";
  check_folder_is_free(run.folder);
  const TrainResult result = train(model, text, options, run);
  expect(result.steps == 4 && newest_checkpoint(run.folder).has_value(), "training");
  const Evaluation found = evaluate(model, text, {.length = 16});
  expect(found.perplexity() < 300 && found.nll() > 0 && found.tokens_per_second() > 0 && found.bits_per_byte(600) > 0,
         "evaluation");
  expect(!attention_map(model, text, 16).heads.empty(), "where a model looks");
  expect(
      layer_states(model, Tensor::from(std::vector<int32_t>{1, 2}, {1, 2}), std::vector<int64_t>{1}).states.size() > 3,
      "the stream inside a model");
  expect(evaluate_stream(model, text).tokens == static_cast<int64_t>(text.size()), "evaluation in one pass");
  const StreamEvaluation stream = evaluate_stream(model, std::span<const int32_t>(text).first(50));
  expect(
      stream.perplexity() < 300 && stream.nll() > 0 && stream.tokens_per_second() > 0 && stream.bits_per_byte(50) > 0,
      "one pass");
  Scorer scorer(model, {.context_length = 4});
  expect(scorer.score(text).size() == text.size() && scorer.length() == 4 && scorer.certificate().keys == 0,
         "scores of tokens that come");
  model.save(folder / "model");
  LanguageModel loaded = LanguageModel::load(folder / "model");
  const auto no_dropout = [](LanguageModelConfig& config) { config.transformer.block.dropout = 0; };
  expect(LanguageModel::load(folder / "model", no_dropout).config().transformer.block.dropout == 0,
         "an adjusted model");
  GenerateOptions generate;
  generate.max_tokens = 4;
  generate.temperature = 0;
  const std::vector<int32_t> one_token = {1};
  expect(model.generate_ids(one_token, generate).size() == static_cast<size_t>(generate.max_tokens), "ids");
  expect(loaded.generate("x", generate) == model.generate("x", generate), "generation");
  Prompt made_prompt(loaded, "x");
  Prompt prompt(std::move(made_prompt));
  expect(prompt.tokens() == 2 && prompt.seconds() > 0 && prompt.bytes() > 0, "prompts");
  const Generation sample = prompt.generate(generate);
  std::vector<Prompt> prompts;
  for (int i = 0; i < 2; ++i) prompts.push_back(prompt.fork());
  const std::vector<Generation> samples = Prompt::generate_batch(std::move(prompts), {generate});
  expect(samples.size() == 2 && samples[0].text == sample.text, "texts that are written together");
  made_prompt = std::move(prompt);
  expect(std::move(made_prompt).generate(generate).text == sample.text && sample.tokens_per_second() > 0, "samples");
  loaded.set_interpolation({.factor = 2});
  expect(loaded.interpolation().factor == 2, "interpolation");
  expect(loaded.config().vocab_size == 257 && loaded.slopes().size() == 1, "the loaded model");

  const std::vector<std::string> texts{"a text", "another"};
  EmbedOptions pooled;
  pooled.pooling = pooling_from(name_of(Pooling::last));
  expect(embed(loaded, texts, pooled).size(0) == 2, "vectors of texts");
  expect(find_model(folder.string()) == folder, "the path of a model");
  const EncoderInput input = encoder_input(loaded, texts[0]);
  expect(embed_inputs(loaded, std::span(&input, 1), pooled).size(0) == 1, "vectors of encoded texts");
  const ChunkedInput chunked = chunked_input(loaded, texts);
  expect(embed_spans(loaded, chunked.input, chunked.spans, pooled).size(0) == 2, "vectors of parts of a text");
  expect(!loaded.config().mask_token(), "a decoder masks nothing");
  LanguageModel smaller = LanguageModel::load(folder / "model");
  smaller.convert_weights(DType::bfloat16);
  expect(smaller.weight_bytes() < loaded.weight_bytes(), "converted weights");
  encoders(loaded.config(), folder);

  ModelRecipe recipe{.position = Position::t5};
  recipe.options.set("layers", 2).set("alibi_slopes", std::vector<double>{0.5});
  recipe.options.unset("alibi_slopes");
  expect(recipe.config(64).transformer.layers == 2 && *recipe.options.find("layers") == OptionValue(int64_t{2}),
         "options of a model");
  const auto words = std::make_shared<ByteTokenizer>();
  expect(LanguageModel::without_values(preset("tiny"), words).has_tokenizer(), "a model to be loaded");
  expect(recipe.model(64, words, 1).sharing_weights(no_dropout).config().train_length == 64, "the model of a recipe");
  LanguageModelConfig applied = preset("tiny");
  recipe.options.apply_to(applied);
  expect(applied.transformer.layers == 2, "options applied to a configuration");
  expect(config_values(applied).size() > 20, "fields of a model");

  CompareOptions compared = compare_defaults("tiny");
  expect(task_names().size() > 3, "the names of tasks");
  std::filesystem::create_directory(folder / "text");
  for (const char* name : {"a.txt", "b.txt"}) {
    FILE* file = std::fopen((folder / "text" / name).c_str(), "w");
    for (int i = 0; i < 200; ++i) std::fprintf(file, "line %d of a text that is %s\n", i, name);
    std::fclose(file);
  }
  compared.texts = {(folder / "text" / "a.txt").string()};
  compared.valid = {(folder / "text" / "b.txt").string()};
  set_warning_handler([](std::string_view warning) { std::fprintf(stderr, "%s\n", std::string(warning).c_str()); });
  const InterruptScope never([] {});
  const TrainingData data = training_data(compared.texts, compared.valid);
  expect(describe_skipped(FilesRead()).empty(), "no skipped files");
  expect(recipe.read_text(compared.texts, compared.valid).train_bytes == data.train_bytes, "the text of a recipe");
  expect(data.train.tokens.size() > 1000 && data.valid_bytes > 1000, "text to train on");
  expect(text_to_score(*data.tokenizer, compared.valid).bytes == data.valid_bytes &&
             held_out_text(*data.tokenizer, compared.texts, compared.valid).bytes == data.valid_bytes,
         "text to measure on");
  expect(held_out_warning(data).empty(), "text that is not trained on");
  compared.positions = {Position::alibi};
  compared.train.train_length = 8;
  compared.train.train_tokens = 256;
  compared.train.batch_tokens = compared.train.micro_batch_tokens = 64;
  compared.lengths = {8, 16};
  compared.eval_tokens = 64;
  compared.sample_tokens = 0;
  const CompareResults results = compare(compared);
  expect(results.methods.size() == 1 && results.methods[0].evaluations.size() == 2, "a comparison");
  expect(!compared_precision(compared.out), "a comparison that was not saved");
}

}  // namespace

int main() {
  try {
    const Folder folder;
    runtime();
    tensors();
    attend();
    from_c();
    names();
    transformer();
    language_model(folder.path);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return failures;
}
