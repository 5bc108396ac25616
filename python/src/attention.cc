// attention, its backward pass, and merging.
#include "alibi/attention.h"

#include <optional>

#include "alibi/stream.h"
#include "arrays.h"
#include "bindings.h"
#include "lock.h"
#include "options.h"
#include "torch_tensors.h"

namespace alibi::python {
namespace {

using namespace nb::literals;

constexpr const char* operation = "attention";

/// The device of a call, and its stream: None for the CPU, or a cudaStream_t as a number.
struct Queue {
  explicit Queue(nb::handle stream) {
    if (stream.is_none()) return;
    void* const number = PyLong_AsVoidPtr(stream.ptr());
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    device = Device::cuda;
    use.emplace(number);
  }

  Device device = Device::cpu;
  std::optional<UseStream> use;
};

/// The words that were saved, and zeros behind them.
void copy_padded(Tensor& to, const Tensor& words) {
  const int64_t count = words.elements();
  if (to.elements() > count) to.slice(0, count, to.elements()).fill(0);
  Tensor(to.slice(0, 0, count)).copy_from(words);
}

/// Returns the output, or (output, lse), of the kind of q.
nb::object forward_result(nb::handle q_in, nb::handle k_in, nb::handle v_in, const nb::tuple& options_in,
                          bool return_lse) {
  const bool tensors = is_torch(q_in);
  if (is_torch(k_in) != tensors || is_torch(v_in) != tensors) throw nb::type_error("arrays beside tensors");
  if (tensors) follow_torch_threads();
  const Array q(q_in, operation, "q"), k(k_in, operation, "k"), v(v_in, operation, "v");
  const Batch batch = batch_of(q.tensor, operation);
  const AttentionOptions options = options_of(options_in, operation, batch);
  Array out = Array::for_result(q_in, q.tensor.shape(), q.tensor.dtype());
  if (!return_lse) {
    const WithoutLock others_run;
    attention(q.tensor, k.tensor, v.tensor, options, out.tensor);
  } else {
    Array lse = Array::for_result(q_in, {batch.size, batch.heads, q.tensor.size(1)}, DType::float32);
    {
      const WithoutLock others_run;
      AttentionState state;
      attention(q.tensor, k.tensor, v.tensor, options, out.tensor, &state);
      lse.tensor.copy_from(state.lse);
    }
    return nb::make_tuple(out.object(), lse.object());
  }
  return out.object();
}

/// Writes out; lse and what the backward pass needs only where there is an array for it. On a GPU there are arrays for
/// all of them or for none.
void forward(nb::handle q_in, nb::handle k_in, nb::handle v_in, nb::handle out_in, nb::handle lse_in,
             nb::handle kernel_lse_in, nb::handle blocks_in, const nb::tuple& options_in, nb::handle stream) {
  const Queue queue(stream);
  const Array q(q_in, operation, "q", queue.device), k(k_in, operation, "k", queue.device),
      v(v_in, operation, "v", queue.device);
  Array out(out_in, operation, "out", queue.device);
  const Batch batch = batch_of(q.tensor, operation);
  std::optional<Array> lse = optional_array(lse_in, operation, "lse", queue.device),
                       kernel_lse = optional_array(kernel_lse_in, operation, "kernel_lse", queue.device),
                       blocks = optional_array(blocks_in, operation, "blocks", queue.device);
  const AttentionOptions options = options_of(options_in, operation, batch, queue.device);
  const WithoutLock others_run;
  if (!lse) return attention(q.tensor, k.tensor, v.tensor, options, out.tensor);
  AttentionState state;
  if (queue.device != Device::cpu) {
    state = {lse->tensor, {}, KernelState::in_memory(kernel_lse.value().tensor, blocks.value().tensor)};
    return attention(q.tensor, k.tensor, v.tensor, options, out.tensor, &state);
  }
  attention(q.tensor, k.tensor, v.tensor, options, out.tensor, &state);
  lse->tensor.copy_from(state.lse);
  if (kernel_lse) kernel_lse->tensor.copy_from(state.kernel.saved_lse());
  if (blocks) copy_padded(blocks->tensor, state.kernel.saved_blocks());
}

void backward(nb::handle dout_in, nb::handle q_in, nb::handle k_in, nb::handle v_in, nb::handle out_in,
              nb::handle lse_in, nb::handle kernel_lse_in, nb::handle blocks_in, nb::handle dq_in, nb::handle dk_in,
              nb::handle dv_in, nb::handle dslopes_in, nb::handle dsinks_in, nb::handle dlog_decay_in,
              const nb::tuple& options_in, nb::handle stream) {
  const Queue queue(stream);
  const auto array = [&](nb::handle object, const char* name) { return Array(object, operation, name, queue.device); };
  const Array dout = array(dout_in, "dout"), q = array(q_in, "q"), k = array(k_in, "k"), v = array(v_in, "v"),
              out = array(out_in, "out"), lse = array(lse_in, "lse"), kernel_lse = array(kernel_lse_in, "kernel_lse"),
              blocks = array(blocks_in, "blocks");
  Array dq = array(dq_in, "dq"), dk = array(dk_in, "dk"), dv = array(dv_in, "dv");
  std::optional<Array> dslopes = optional_array(dslopes_in, operation, "dslopes", queue.device),
                       dsinks = optional_array(dsinks_in, operation, "dsinks", queue.device),
                       dlog_decay = optional_array(dlog_decay_in, operation, "dlog_decay", queue.device);
  const AttentionOptions options = options_of(options_in, operation, batch_of(q.tensor, operation), queue.device);
  const WithoutLock others_run;
  AttentionState state;
  state.lse = lse.tensor;
  state.kernel = queue.device == Device::cpu ? KernelState::restore(kernel_lse.tensor, blocks.tensor)
                                             : KernelState::in_memory(kernel_lse.tensor, blocks.tensor);
  Tensor sums;
  if (dslopes) sums = dslopes->tensor.reshape({-1});
  attention_backward(dout.tensor, q.tensor, k.tensor, v.tensor, out.tensor, state, options, dq.tensor, dk.tensor,
                     dv.tensor,
                     {.dtable = nullptr,
                      .dslopes = dslopes ? &sums : nullptr,
                      .dsinks = dsinks ? &dsinks->tensor : nullptr,
                      .dlog_decay = dlog_decay ? &dlog_decay->tensor : nullptr});
}

/// The forward pass over keys in pages, whose table and counts are int32 arrays or None. `added` are None, or new keys
/// and values and the counts before them. They are written into the caches first, after all arguments were checked.
void forward_paged(nb::handle q_in, nb::handle k_in, nb::handle v_in, nb::handle out_in, nb::handle lse_in,
                   const nb::tuple& options_in, nb::handle table_in, nb::handle used_in, nb::handle padding_in,
                   nb::handle added, const char* name) {
  const bool appends = !added.is_none();
  const auto cache = [&](nb::handle object, const char* cache_name) {
    return appends ? Array::to_write(object, name, cache_name) : Array(object, name, cache_name);
  };
  const Array q(q_in, name, "q");
  Array k = cache(k_in, "k_cache"), v = cache(v_in, "v_cache");
  const Array table(table_in, name, "block_table");
  std::optional<Array> new_k, new_v;
  std::vector<int32_t> lengths;
  if (appends) {
    const auto at = [&](Py_ssize_t i) { return nb::handle(PyTuple_GetItem(added.ptr(), i)); };
    new_k.emplace(at(0), name, "k");
    new_v.emplace(at(1), name, "v");
    lengths = ints_of(at(2), name, "cache_seqlens");
  }
  Array out(out_in, name, "out");
  std::optional<Array> lse = optional_array(lse_in, operation, "lse");
  AttentionOptions options = options_of(options_in, name, batch_of(q.tensor, name));
  options.block_table = table.tensor;
  options.seqused_k = ints_of(used_in, name, "cache_seqlens");
  options.leftpad_k = ints_of(padding_in, name, "cache_leftpad");
  const WithoutLock others_run;
  if (appends) {
    check_attention(q.tensor, k.tensor, v.tensor, options, out.tensor);
    append_keys(new_k->tensor, new_v->tensor, lengths, table.tensor, k.tensor, v.tensor);
  }
  AttentionState state;
  attention(q.tensor, k.tensor, v.tensor, options, out.tensor, lse ? &state : nullptr);
  if (lse) lse->tensor.copy_from(state.lse);
}

void merge(nb::handle out_a_in, nb::handle lse_a_in, nb::handle out_b_in, nb::handle lse_b_in, nb::handle out_in,
           nb::handle lse_in) {
  constexpr const char* merging = "merge_attention";
  const Array out_a(out_a_in, merging, "out_a"), lse_a(lse_a_in, merging, "lse_a"), out_b(out_b_in, merging, "out_b"),
      lse_b(lse_b_in, merging, "lse_b");
  Array out(out_in, merging, "out"), lse(lse_in, merging, "lse");
  const WithoutLock others_run;
  merge_attention(out_a.tensor, lse_a.tensor, out_b.tensor, lse_b.tensor, out.tensor, lse.tensor);
}

}  // namespace

void bind_attention(nb::module_& m) {
  m.def("attention", forward, "q"_a, "k"_a, "v"_a, "out"_a, "lse"_a.none(), "kernel_lse"_a.none(), "blocks"_a.none(),
        "options"_a, "stream"_a = nb::none());
  m.def("attention_backward", backward, "dout"_a, "q"_a, "k"_a, "v"_a, "out"_a, "lse"_a, "kernel_lse"_a, "blocks"_a,
        "dq"_a, "dk"_a, "dv"_a, "dslopes"_a.none(), "dsinks"_a.none(), "dlog_decay"_a.none(), "options"_a,
        "stream"_a = nb::none());
  m.def("attention_paged", forward_paged, "q"_a, "k_cache"_a, "v_cache"_a, "out"_a, "lse"_a.none(), "options"_a,
        "block_table"_a, "seqused_k"_a.none(), "leftpad_k"_a.none(), "added"_a.none(), "operation"_a);
  m.def("attention_result", forward_result, "q"_a, "k"_a, "v"_a, "options"_a, "return_lse"_a);
  m.def(
      "check_options", [](const nb::tuple& options) { options_of(options, operation, {}); }, "options"_a);
  m.def("merge_attention", merge, "out_a"_a, "lse_a"_a, "out_b"_a, "lse_b"_a, "out"_a, "lse"_a);
  m.def(
      "saved_words",
      [](int64_t batch, int64_t queries, int64_t heads, const nb::tuple& options) {
        return KernelState::saved_words(batch, queries, heads, options_of(options, operation, {batch, heads}));
      },
      "batch"_a, "queries"_a, "heads"_a, "options"_a);
}

}  // namespace alibi::python
