// C functions for attention: forward, backward and merging.
#include <algorithm>

#include "alibi/stream.h"
#include "capi/convert.h"

using namespace alibi;
using namespace alibi::capi;

alibi_status alibi_attention_state_create(alibi_attention_state** state) {
  return guarded([&] {
    check_pointer("alibi_attention_state_create", "state", state);
    *state = new alibi_attention_state;
  });
}

void alibi_attention_state_destroy(alibi_attention_state* state) {
  const KeepErrno keep_errno;
  delete state;
}

alibi_status alibi_attention_state_lse(const alibi_attention_state* state, float* lse, size_t count) {
  return guarded([&] {
    constexpr const char* operation = "alibi_attention_state_lse";
    check_pointer(operation, "state", state);
    const Tensor& from = state->state.lse;
    const auto expected = static_cast<size_t>(from.elements());
    check(from.defined(), "[{}] state is empty; run alibi_attention_forward with it first", operation);
    check(count == expected, "[{}] count is {}, expected {}, which is batch * heads * queries", operation, count,
          expected);
    if (count > 0) check_pointer(operation, "lse", lse);
    const UseStream use(state->stream);
    std::copy_n(from.to(Device::cpu).data<float>(), count, lse);
  });
}

alibi_status alibi_attention_state_blocks(const alibi_attention_state* state, int64_t* visited, int64_t* total) {
  return guarded([&] {
    constexpr const char* operation = "alibi_attention_state_blocks";
    check_pointer(operation, "state", state);
    check_pointer(operation, "visited", visited);
    check_pointer(operation, "total", total);
    const UseStream use(state->stream);
    const AttentionStats stats = count_blocks(state->state);
    *visited = stats.blocks_visited;
    *total = stats.blocks_total;
  });
}

alibi_status alibi_attention_state_words(const alibi_tensor* q, const alibi_attention_options* options, size_t* words) {
  return guarded([&] {
    constexpr const char* operation = "alibi_attention_state_words";
    const Tensor q_view = to_tensor(operation, "q", q);
    check_pointer(operation, "words", words);
    const AttentionOptions settings = to_options(operation, options, q_view);
    *words = static_cast<size_t>(KernelState::saved_words(q_view.size(0), q_view.size(1), q_view.size(2), settings));
  });
}

alibi_status alibi_attention_state_save(const alibi_attention_state* state, float* lse, float* kernel_lse,
                                        size_t lse_count, int32_t* blocks, size_t words) {
  return guarded([&] {
    constexpr const char* operation = "alibi_attention_state_save";
    check_pointer(operation, "state", state);
    check(!state->positions.lse.defined(), "[{}] state is of alibi_attention_positions, which cannot be saved",
          operation);
    const Tensor& from = state->state.lse;
    check(from.defined(), "[{}] state is empty; run alibi_attention_forward with it first", operation);
    const UseStream use(state->stream);
    const Tensor kernel = state->state.kernel.saved_lse(), saved = state->state.kernel.saved_blocks();
    const auto expected = static_cast<size_t>(from.elements()), expected_words = static_cast<size_t>(saved.elements());
    check(lse_count == expected, "[{}] lse_count is {}, expected {}, which is batch * heads * queries", operation,
          lse_count, expected);
    check(words == expected_words, "[{}] words is {}, expected {}, alibi_attention_state_words()", operation, words,
          expected_words);
    check_pointer(operation, "blocks", blocks);
    if (lse_count > 0) {
      check_pointer(operation, "lse", lse);
      check_pointer(operation, "kernel_lse", kernel_lse);
      std::copy_n(from.to(Device::cpu).data<float>(), lse_count, lse);
      std::copy_n(kernel.to(Device::cpu).data<float>(), lse_count, kernel_lse);
    }
    std::copy_n(saved.data<int32_t>(), words, blocks);
  });
}

alibi_status alibi_attention_state_restore(alibi_attention_state* state, const alibi_tensor* q, const float* lse,
                                           const float* kernel_lse, const int32_t* blocks, size_t words) {
  return guarded([&] {
    constexpr const char* operation = "alibi_attention_state_restore";
    check_pointer(operation, "state", state);
    const Tensor q_view = to_tensor(operation, "q", q);
    const Shape shape = {q_view.size(0), q_view.size(2), q_view.size(1)};
    const auto copy = [&](const char* name, const float* values) {
      if (q_view.elements() > 0) check_pointer(operation, name, values);
      return Tensor::view(const_cast<float*>(values), shape).clone();
    };
    check_pointer(operation, "blocks", blocks);
    check(words <= size_t{1} << 40, "[{}] words is {}, expected alibi_attention_state_words()", operation, words);
    const Tensor saved = Tensor::view(const_cast<int32_t*>(blocks), {static_cast<int64_t>(words)}, DType::int32);
    AttentionState restored;
    restored.lse = copy("lse", lse);
    restored.kernel = KernelState::restore(copy("kernel_lse", kernel_lse), saved);
    state->state = restored;
    state->positions = {};
    state->stream = nullptr;
  });
}

alibi_status alibi_attention(const alibi_tensor* q, const alibi_tensor* k, const alibi_tensor* v,
                             const alibi_attention_options* options, const alibi_tensor* out,
                             alibi_attention_state* state) {
  return guarded([&] {
    constexpr const char* operation = "alibi_attention";
    const auto [device, stream] = to_place(operation, options);
    const UseStream use(stream);
    const Tensor q_view = to_tensor(operation, "q", q, device);
    const Tensor k_view = to_tensor(operation, "k", k, device), v_view = to_tensor(operation, "v", v, device);
    Tensor out_view = to_tensor(operation, "out", out, device);
    AttentionOptions settings = to_options(operation, options, q_view);
    if (settings.log_decay && settings.block_table) {
      const Shape shape = {k_view.size(0), k_view.size(1), q_view.size(2)};
      check(settings.log_decay->elements() == shape[0] * shape[1] * shape[2],
            "[{}] log_decay_count is {}, expected pages * page rows * heads, {}", operation,
            settings.log_decay->elements(), shape[0] * shape[1] * shape[2]);
      settings.log_decay = settings.log_decay->reshape(shape);
    }
    attention(q_view, k_view, v_view, settings, out_view, state != nullptr ? &state->state : nullptr);
    if (state == nullptr) return;
    state->positions = {};
    state->stream = stream;
  });
}

alibi_status alibi_attention_backward(const alibi_tensor* dout, const alibi_tensor* q, const alibi_tensor* k,
                                      const alibi_tensor* v, const alibi_tensor* out,
                                      const alibi_attention_state* state, const alibi_attention_options* options,
                                      const alibi_tensor* dq, const alibi_tensor* dk, const alibi_tensor* dv,
                                      float* dbuckets, float* dslopes, float* dsinks, float* dlog_decay) {
  return guarded([&] {
    constexpr const char* operation = "alibi_attention_backward";
    const auto [device, stream] = to_place(operation, options);
    const UseStream use(stream);
    const Tensor dout_view = to_tensor(operation, "dout", dout, device), q_view = to_tensor(operation, "q", q, device);
    const Tensor k_view = to_tensor(operation, "k", k, device), v_view = to_tensor(operation, "v", v, device);
    const Tensor out_view = to_tensor(operation, "out", out, device);
    check_pointer(operation, "state", state);
    const AttentionOptions settings = to_options(operation, options, q_view);
    Tensor dq_view = to_tensor(operation, "dq", dq, device), dk_view = to_tensor(operation, "dk", dk, device);
    Tensor dv_view = to_tensor(operation, "dv", dv, device);
    Tensor dtable, dslopes_view, dsinks_view, dlog_decay_view;
    const auto given = [&, device = device](const char* name, float* values, bool has_input, const char* input,
                                            const Shape& shape, Tensor& view) -> Tensor* {
      if (values == nullptr) return nullptr;
      check(has_input, "[{}] {} is given, but {} is not; set both or neither", operation, name, input);
      view = Tensor::view(values, shape, DType::float32, {}, device);
      return &view;
    };
    const auto& buckets = settings.buckets;
    const auto& decay = settings.log_decay;
    const AttentionBiasGradients bias_gradients = {
        .dtable = given("dbuckets", dbuckets, buckets.has_value(), "buckets",
                        buckets ? buckets->table.shape() : Shape(), dtable),
        .dslopes = given("dslopes", dslopes, !settings.alibi_slopes.empty(), "alibi_slopes",
                         {std::ssize(settings.alibi_slopes)}, dslopes_view),
        .dsinks = given("dsinks", dsinks, !settings.sinks.empty(), "sinks", {std::ssize(settings.sinks)}, dsinks_view),
        .dlog_decay = given("dlog_decay", dlog_decay, decay.has_value(), "log_decay", decay ? decay->shape() : Shape(),
                            dlog_decay_view)};
    AttentionState kept = state->state;
    if (kept.lse.defined() && kept.lse.device() != device) {  // the state was restored from arrays on the CPU
      kept.lse = kept.lse.to(device);
      kept.kernel = KernelState::restore(kept.kernel.saved_lse().to(device), kept.kernel.saved_blocks());
    }
    attention_backward(dout_view, q_view, k_view, v_view, out_view, kept, settings, dq_view, dk_view, dv_view,
                       bias_gradients);
  });
}

alibi_status alibi_attention_merge(const alibi_tensor* out_a, const float* lse_a, const alibi_tensor* out_b,
                                   const float* lse_b, const alibi_tensor* out, float* lse) {
  return guarded([&] {
    constexpr const char* operation = "alibi_attention_merge";
    const Tensor a = to_tensor(operation, "out_a", out_a), b = to_tensor(operation, "out_b", out_b);
    Tensor merged = to_tensor(operation, "out", out);
    const Shape shape = {a.size(0), a.size(2), a.size(1)};
    const auto view = [&](const char* name, const float* values) {
      if (a.elements() > 0) check_pointer(operation, name, values);
      return Tensor::view(const_cast<float*>(values), shape);
    };
    Tensor merged_lse = view("lse", lse);
    merge_attention(a, view("lse_a", lse_a), b, view("lse_b", lse_b), merged, merged_lse);
  });
}

alibi_status alibi_append_keys(const alibi_tensor* k, const alibi_tensor* v, const int32_t* cache_seqlens,
                               size_t cache_seqlens_count, const int32_t* block_table, int64_t block_table_pages,
                               const alibi_tensor* k_cache, const alibi_tensor* v_cache) {
  return guarded([&] {
    constexpr const char* operation = "alibi_append_keys";
    const Tensor k_view = to_tensor(operation, "k", k, Device::cpu), v_view = to_tensor(operation, "v", v, Device::cpu);
    Tensor k_rows = to_tensor(operation, "k_cache", k_cache, Device::cpu);
    Tensor v_rows = to_tensor(operation, "v_cache", v_cache, Device::cpu);
    if (cache_seqlens_count > 0) check_pointer(operation, "cache_seqlens", cache_seqlens);
    append_keys(k_view, v_view, {cache_seqlens, cache_seqlens + cache_seqlens_count},
                to_block_table(operation, block_table, static_cast<int64_t>(cache_seqlens_count), block_table_pages),
                k_rows, v_rows);
  });
}
