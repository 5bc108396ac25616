// The cache of past keys and values, and attention of new queries over it.
#include <nanobind/stl/string.h>

#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "alibi/error.h"
#include "alibi/kv_cache.h"
#include "arrays.h"
#include "bindings.h"
#include "options.h"

namespace alibi::python {
namespace {

using namespace nb::literals;

/// One call at a time: Python's threads run while others compute.
class SharedCache {
 public:
  SharedCache(int64_t batch, int64_t kv_heads, int64_t head_dim, const std::string& dtype)
      : cache_(batch, kv_heads, head_dim, type_of(dtype)) {}

  /// Calls body(cache) without the interpreter's lock.
  template <class Body>
  auto use(const Body& body) {
    const nb::gil_scoped_release others_run;
    const std::lock_guard alone(mutex_);
    return body(cache_);
  }

 private:
  static DType type_of(const std::string& name) {
    if (name == "float32") return DType::float32;
    if (name == "bfloat16") return DType::bfloat16;
    if (name == "float16") return DType::float16;
    if (name == "q8_0") return DType::q8_0;
    throw UsageError("[kv_cache] dtype is '" + name + "', expected 'float32', 'bfloat16', 'float16' or 'q8_0'");
  }

  std::mutex mutex_;
  KvCache cache_;
};

void copy_out(SharedCache& cache, nb::handle out_in, bool keys) {
  Array out(out_in, "kv_cache", "out");
  cache.use([&](const KvCache& held) { out.tensor.copy_from(keys ? held.keys() : held.values()); });
}

void decode(nb::handle q_in, SharedCache& cache, nb::handle out_in, nb::handle lse_in, const nb::tuple& options_in,
            bool bits) {
  constexpr const char* operation = "attention_decode";
  const Array q(q_in, operation, "q", bits);
  Array out(out_in, operation, "out", bits);
  std::optional<Array> lse;
  if (!lse_in.is_none()) lse.emplace(lse_in, operation, "lse");
  if (q.tensor.axes() != 4) {
    throw UsageError("[attention_decode] q has shape " + to_string(q.tensor.shape()) +
                     ", expected [batch, length, heads, head_dim]");
  }
  const AttentionOptions options = options_of(options_in, operation, q.tensor.size(0), q.tensor.size(2));
  cache.use([&](const KvCache& held) {
    AttentionState state;
    attention_decode(q.tensor, held, options, out.tensor, lse ? &state : nullptr);
    if (lse) lse->tensor.copy_from(state.lse);
  });
}

}  // namespace

void bind_cache(nb::module_& m) {
  nb::class_<SharedCache>(m, "KvCache")
      .def(nb::init<int64_t, int64_t, int64_t, const std::string&>(), "batch"_a, "kv_heads"_a, "head_dim"_a, "dtype"_a)
      .def(
          "append",
          [](SharedCache& cache, nb::handle k_in, nb::handle v_in, bool bits) {
            const Array k(k_in, "kv_cache", "k", bits), v(v_in, "kv_cache", "v", bits);
            cache.use([&](KvCache& held) { held.append(k.tensor, v.tensor); });
          },
          "k"_a, "v"_a, "bits"_a)
      .def(
          "truncate", [](SharedCache& cache, int64_t n) { cache.use([&](KvCache& held) { held.truncate(n); }); },
          "length"_a)
      .def(
          "reserve", [](SharedCache& cache, int64_t n) { cache.use([&](KvCache& held) { held.reserve(n); }); },
          "keys"_a)
      .def("length", [](SharedCache& cache) { return cache.use([](const KvCache& held) { return held.length(); }); })
      .def("bytes", [](SharedCache& cache) { return cache.use([](const KvCache& held) { return held.bytes(); }); })
      .def(
          "copy_keys", [](SharedCache& cache, nb::handle out) { copy_out(cache, out, true); }, "out"_a)
      .def(
          "copy_values", [](SharedCache& cache, nb::handle out) { copy_out(cache, out, false); }, "out"_a);
  m.def("attention_decode", decode, "q"_a, "cache"_a, "out"_a, "lse"_a.none(), "options"_a, "bits"_a);
}

}  // namespace alibi::python
