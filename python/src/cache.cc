// The cache of past keys and values, and attention of new queries over it.
#include <nanobind/stl/string.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "alibi/kv_cache.h"
#include "arguments.h"
#include "arrays.h"
#include "bindings.h"
#include "lock.h"
#include "options.h"

namespace alibi::python {
namespace {

using namespace nb::literals;

constexpr const char* operation = "kv_cache";

/// One call at a time: Python's threads run while others compute.
class SharedCache {
 public:
  SharedCache(nb::handle batch, nb::handle kv_heads, nb::handle head_dim, nb::handle dtype)
      : cache_(integer(batch, operation, "batch"), integer(kv_heads, operation, "kv_heads"),
               integer(head_dim, operation, "head_dim"), type_of(dtype)) {}

  /// Calls body(cache) without the interpreter's lock.
  template <class Body>
  auto use(const Body& body) {
    const WithoutLock others_run;
    const std::lock_guard alone(mutex_);
    return body(cache_);
  }

 private:
  static DType type_of(nb::handle dtype) {
    const std::string name = text(dtype, operation, "dtype");
    if (name == "float32") return DType::float32;
    if (name == "bfloat16") return DType::bfloat16;
    if (name == "float16") return DType::float16;
    if (name == "q8_0") return DType::q8_0;
    refuse_value(dtype, operation, "dtype", "'float32', 'bfloat16', 'float16' or 'q8_0'");
  }

  std::mutex mutex_;
  KvCache cache_;
};

void copy_out(SharedCache& cache, nb::handle out_in, bool keys) {
  Array out(out_in, operation, "out");
  cache.use([&](const KvCache& held) { out.tensor.copy_from(keys ? held.keys() : held.values()); });
}

void decode(nb::handle q_in, SharedCache& cache, nb::handle out_in, nb::handle lse_in, const nb::tuple& options_in) {
  constexpr const char* decoding = "attention_decode";
  const Array q(q_in, decoding, "q");
  Array out(out_in, decoding, "out");
  std::optional<Array> lse = optional_array(lse_in, decoding, "lse");
  const AttentionOptions options = options_of(options_in, decoding, batch_of(q.tensor, decoding));
  cache.use([&](const KvCache& held) {
    AttentionState state;
    attention_decode(q.tensor, held, options, out.tensor, lse ? &state : nullptr);
    if (lse) lse->tensor.copy_from(state.lse);
  });
}

}  // namespace

void bind_cache(nb::module_& m) {
  nb::class_<SharedCache>(m, "KvCache")
      .def(nb::init<nb::handle, nb::handle, nb::handle, nb::handle>(), "batch"_a, "kv_heads"_a, "head_dim"_a, "dtype"_a)
      .def(
          "append",
          [](SharedCache& cache, nb::handle k_in, nb::handle v_in, nb::handle gates_in) {
            const Array k(k_in, operation, "k"), v(v_in, operation, "v");
            std::optional<Tensor> gates;
            if (!gates_in.is_none()) gates = Array::of_floats(gates_in, operation, "log_decay").tensor.clone();
            cache.use([&](KvCache& held) { held.append(k.tensor, v.tensor, gates); });
          },
          "k"_a, "v"_a, "log_decay"_a.none())
      .def(
          "truncate",
          [](SharedCache& cache, nb::handle n_in) {
            const int64_t n = integer(n_in, operation, "length");
            cache.use([&](KvCache& held) { held.truncate(n); });
          },
          "length"_a)
      .def(
          "reserve",
          [](SharedCache& cache, nb::handle n_in) {
            const int64_t n = integer(n_in, operation, "keys");
            cache.use([&](KvCache& held) { held.reserve(n); });
          },
          "keys"_a)
      .def("length", [](SharedCache& cache) { return cache.use([](const KvCache& held) { return held.length(); }); })
      .def("bytes", [](SharedCache& cache) { return cache.use([](const KvCache& held) { return held.bytes(); }); })
      .def(
          "copy_keys", [](SharedCache& cache, nb::handle out) { copy_out(cache, out, true); }, "out"_a)
      .def(
          "copy_values", [](SharedCache& cache, nb::handle out) { copy_out(cache, out, false); }, "out"_a);
  m.def("attention_decode", decode, "q"_a, "cache"_a, "out"_a, "lse"_a.none(), "options"_a);
}

}  // namespace alibi::python
