#include "capi/convert.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>

#include "alibi/runtime.h"
#include "alibi/version.h"

namespace alibi::capi {
namespace {

/// The size is fixed, so that storing a message cannot run out of memory.
thread_local char last_error[1024] = "";

/// Number of bytes between the first and the last element in either direction, or -1 if no memory is that large.
int64_t reach(const Shape& shape, const Shape& strides, DType dtype) {
  int64_t total = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (strides[axis] == std::numeric_limits<int64_t>::min()) return -1;
    int64_t step = strides[axis] < 0 ? -strides[axis] : strides[axis];
    if (__builtin_mul_overflow(step, shape[axis] - 1, &step) || __builtin_add_overflow(total, step, &total)) return -1;
  }
  const auto size = static_cast<int64_t>(size_of(dtype));
  return total > std::numeric_limits<int64_t>::max() / size - 1 ? -1 : (total + 1) * size;
}

template <class T>
std::vector<T> to_vector(const char* operation, const char* name, const T* values, size_t count) {
  check(values != nullptr || count == 0, "[{}] {} is null, but its count is {}; expected a pointer or a count of 0",
        operation, name, count);
  if (values == nullptr) return {};
  return {values, values + count};
}

std::vector<float> to_slopes(const char* operation, const char* name, const float* slopes, size_t count, size_t heads,
                             size_t sequences) {
  check(slopes == nullptr || count == heads || count == sequences * heads,
        "[{}] {} has {} values, expected {} (heads) or {} (heads of each batch entry or packed sequence)", operation,
        name, count, heads, sequences * heads);
  return to_vector(operation, name, slopes, count);
}

/// The part of the caller's options that this version of the library knows.
alibi_attention_options known(const char* operation, const alibi_attention_options& options) {
  constexpr size_t size = sizeof(alibi_attention_options);
  constexpr size_t most = 4096;  // larger than any later version would be; a larger value is not a size
  check(options.size >= sizeof options.size && options.size <= most &&
            options.size % alignof(alibi_attention_options) == 0,
        "[{}] size is {}, expected {} in this version; initialize with alibi_attention_options_default()", operation,
        options.size, size);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&options);
  alibi_attention_options result = alibi_attention_options_default();
  if (options.size > size) {  // fields of a later version are accepted if they are all zero
    check(std::all_of(bytes + size, bytes + options.size, [](unsigned char byte) { return byte == 0; }),
          "[{}] options sets fields that version {} of the library does not know; use a newer library", operation,
          version);
  }
  // Fields that an earlier version did not have keep their defaults.
  std::memcpy(&result, bytes, std::min(size, options.size));
  return result;
}

}  // namespace

std::vector<int32_t> to_offsets(const char* operation, const char* name, const int32_t* offsets, size_t count) {
  constexpr size_t most = size_t{1} << 31;
  check(count <= most, "[{}] {} has {} offsets, expected at most {}", operation, name, count, most);
  return to_vector(operation, name, offsets, count);
}

alibi_status keep_error(alibi_status status, const char* message) noexcept {
  std::snprintf(last_error, sizeof last_error, "%s", message);
  return status;
}

void check_pointer(const char* operation, const char* name, const void* pointer) {
  check(pointer != nullptr, "[{}] {} is null, expected a pointer", operation, name);
}

DType to_dtype(const char* operation, const char* name, int32_t dtype) {
  check(dtype == ALIBI_FLOAT32 || dtype == ALIBI_BFLOAT16 || dtype == ALIBI_FLOAT16,
        "[{}] {} is {}, expected {} (ALIBI_FLOAT32), {} (ALIBI_BFLOAT16) or {} (ALIBI_FLOAT16)", operation, name, dtype,
        static_cast<int>(ALIBI_FLOAT32), static_cast<int>(ALIBI_BFLOAT16), static_cast<int>(ALIBI_FLOAT16));
  return dtype == ALIBI_FLOAT32 ? DType::float32 : dtype == ALIBI_BFLOAT16 ? DType::bfloat16 : DType::float16;
}

Place to_place(const char* operation, const alibi_attention_options* given) {
  if (given == nullptr) return {};
  const alibi_attention_options options = known(operation, *given);
  return to_place(operation, options.device, options.stream, "");
}

Place to_place(const char* operation, int32_t device, void* stream, const char* prefix) {
  check(device == ALIBI_DEVICE_CPU || device == ALIBI_DEVICE_CUDA,
        "[{}] {}device is {}, expected {} (ALIBI_DEVICE_CPU) or {} (ALIBI_DEVICE_CUDA)", operation, prefix, device,
        static_cast<int>(ALIBI_DEVICE_CPU), static_cast<int>(ALIBI_DEVICE_CUDA));
  const bool on_cpu = device == ALIBI_DEVICE_CPU;
  check(!on_cpu || stream == nullptr,
        "[{}] {}stream is given, but {}device is ALIBI_DEVICE_CPU; expected a null stream", operation, prefix, prefix);
  return {on_cpu ? Device::cpu : Device::cuda, stream};
}

Tensor to_tensor(const char* operation, const char* name, const alibi_tensor* tensor, Device device) {
  check_pointer(operation, name, tensor);
  const DType dtype = to_dtype(operation, fmt::format("{}.dtype", name).c_str(), tensor->dtype);
  const Shape shape(tensor->shape, tensor->shape + 4);
  Shape strides(tensor->strides, tensor->strides + 4);
  int64_t elements = 1;
  bool fits = true;
  for (const int64_t extent : shape) {
    check(extent >= 0, "[{}] {} has shape {}, expected no negative extents", operation, name, shape);
    fits = fits && !__builtin_mul_overflow(elements, std::max<int64_t>(extent, 1), &elements);
  }
  fits = fits && elements <= std::numeric_limits<int64_t>::max() / 8;
  check(fits, "[{}] {} has shape {}, which has more elements than memory can address", operation, name, shape);
  const bool empty = std::find(shape.begin(), shape.end(), 0) != shape.end();
  check(empty || tensor->data != nullptr, "[{}] {}.data is null, expected a pointer", operation, name);
  check(reinterpret_cast<uintptr_t>(tensor->data) % size_of(dtype) == 0,
        "[{}] {}.data is not aligned to its elements of {} bytes", operation, name, size_of(dtype));
  if (strides == Shape(4, 0)) return Tensor::view(tensor->data, shape, dtype, {}, device);
  check(shape[3] <= 1 || strides[3] == 1, "[{}] {} has strides {}, expected a unit inner stride", operation, name,
        strides);
  check(empty || reach(shape, strides, dtype) > 0,
        "[{}] {} has strides {} for shape {}, which reach beyond what memory can address", operation, name, strides,
        shape);
  return Tensor::view(tensor->data, shape, dtype, std::move(strides), device);
}

std::optional<Tensor> to_block_table(const char* operation, const int32_t* pages, int64_t sequences, int64_t count) {
  if (pages == nullptr) return std::nullopt;
  constexpr int64_t most = int64_t{1} << 31;
  check(count >= 0 && count <= most, "[{}] block_table_pages is {}, expected 0 to {}", operation, count, most);
  return Tensor::view(const_cast<int32_t*>(pages), {sequences, count}, DType::int32);
}

AttentionOptions to_options(const char* operation, const alibi_attention_options* given, const Tensor& q) {
  AttentionOptions result;
  if (given == nullptr) return result;
  const alibi_attention_options options = known(operation, *given);
  result.cu_seqlens_q = to_offsets(operation, "cu_seqlens_q", options.cu_seqlens_q, options.cu_seqlens_q_count);
  result.cu_seqlens_k = to_offsets(operation, "cu_seqlens_k", options.cu_seqlens_k, options.cu_seqlens_k_count);
  const auto heads = static_cast<size_t>(q.size(2));
  const size_t sequences =
      result.cu_seqlens_q.empty() ? static_cast<size_t>(q.size(0)) : result.cu_seqlens_q.size() - 1;
  result.alibi_slopes =
      to_slopes(operation, "alibi_slopes", options.alibi_slopes, options.alibi_slopes_count, heads, sequences);
  result.alibi_slopes_after = to_slopes(operation, "alibi_slopes_after", options.alibi_slopes_after,
                                        options.alibi_slopes_after_count, heads, sequences);
  if (options.buckets != nullptr) {
    constexpr int64_t most = int64_t{1} << 24;
    check(options.num_buckets > 0 && options.num_buckets <= most, "[{}] num_buckets is {}, expected 1 to {}", operation,
          options.num_buckets, most);
    check(options.max_distance >= 0 && options.max_distance <= most, "[{}] max_distance is {}, expected 0 to {}",
          operation, options.max_distance, most);
    BucketedBias bias;
    bias.table = Tensor::view(const_cast<float*>(options.buckets), {options.num_buckets, q.size(2)});
    if (options.max_distance > 0) bias.max_distance = static_cast<int>(options.max_distance);
    result.buckets = bias;
  }
  result.causal = options.bidirectional == 0;
  if (options.query_offset != ALIBI_LAST_ROWS) result.query_offset = options.query_offset;
  result.softmax_scale = options.softmax_scale;
  result.sliding_window = options.sliding_window;
  result.sliding_window_after = options.sliding_window_after;
  result.softcap = options.softcap;
  result.sinks = to_vector(operation, "sinks", options.sinks, options.sinks_count);
  if (options.log_decay != nullptr) {
    // The caller, who has k, gives the rows of pages their shape.
    const int64_t batch = options.block_table != nullptr ? 1 : q.size(0), of_keys = batch * q.size(2);
    const auto count = static_cast<int64_t>(options.log_decay_count);
    check(of_keys > 0 && count >= 0 && count % of_keys == 0,
          "[{}] log_decay_count is {}, expected batch * keys * heads, a multiple of {}", operation,
          options.log_decay_count, of_keys);
    result.log_decay = Tensor::view(const_cast<float*>(options.log_decay), {batch, count / of_keys, q.size(2)},
                                    DType::float32, {}, q.device());
  }
  result.dropout_p = options.dropout_p;
  result.dropout_seed = options.dropout_seed;
  result.tolerance = options.tolerance;
  result.seqused_k = to_vector(operation, "seqused_k", options.seqused_k, options.seqused_k_count);
  result.leftpad_k = to_vector(operation, "leftpad_k", options.leftpad_k, options.leftpad_k_count);
  result.block_table =
      to_block_table(operation, options.block_table, static_cast<int64_t>(sequences), options.block_table_pages);
  return result;
}

}  // namespace alibi::capi

const char* alibi_version(void) { return alibi::version; }

const char* alibi_last_error(void) { return alibi::capi::last_error; }

alibi_status alibi_set_threads(int32_t count) {
  return alibi::capi::guarded([&] { alibi::set_threads(count); });
}

alibi_status alibi_slopes(int32_t heads, double bias_max, float* slopes) {
  return alibi::capi::guarded([&] {
    const std::vector<float> values = alibi::slopes(heads, bias_max);
    alibi::capi::check_pointer("alibi_slopes", "slopes", slopes);
    std::copy(values.begin(), values.end(), slopes);
  });
}
