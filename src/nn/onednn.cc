// Matrix products by oneDNN.
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "alibi/runtime.h"
#include "core/check.h"
#include "core/checksum.h"
#include "core/isa.h"
#include "core/memory.h"
#include "nn/product_library.h"
#include "nn/products.h"

namespace alibi::nn {
namespace {

dnnl::cpu_isa limit_of(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return dnnl::cpu_isa::sse41;  // the lowest instruction set that oneDNN has
    case Isa::neon:
      return dnnl::cpu_isa::all;  // oneDNN for ARM64 has no limits
    case Isa::avx2:
      return dnnl::cpu_isa::avx2;
    case Isa::avx512:
      return dnnl::cpu_isa::avx512_core;
    case Isa::avx512_bf16:
      return dnnl::cpu_isa::avx512_core_bf16;
    case Isa::amx:
      return dnnl::cpu_isa::avx512_core_amx;
  }
  fail("[isa] unknown instruction set");
}

dnnl::engine* make_engine() {
  if (const std::optional<Isa> limit = core::isa_limit()) {
    check(dnnl::set_max_cpu_isa(limit_of(*limit)) == dnnl::status::success,
          "[isa] ALIBI_ISA={}, but something else in this process has used oneDNN before, and it is limited by its "
          "first use only; set ONEDNN_MAX_CPU_ISA as well",
          name_of(*limit));
  }
  return new dnnl::engine(dnnl::engine::kind::cpu, 0);
}

/// The only engine of the process. It is never destroyed, because other threads may compute while the process ends.
/// Throws Error if ALIBI_ISA is set and other code has used oneDNN before, because oneDNN cannot be limited after its
/// first use.
dnnl::engine& engine() {
  static dnnl::engine& instance = *make_engine();
  return instance;
}

std::string describe() {
  engine();  // applies the limit
  const dnnl_version_t* version = dnnl::version();
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  const char* best = "another instruction set";
  for (const Isa candidate : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx}) {
    if (limit_of(candidate) == isa) best = name_of(candidate);
  }
  return fmt::format("oneDNN {}.{}.{}, {}", version->major, version->minor, version->patch, best);
}

/// Creates a product of bfloat16 matrices, which throws if it is not supported.
bool can_multiply_bfloat16() {
  try {
    using Memory = dnnl::memory;
    const Memory::desc a({16, 16}, Memory::data_type::bf16, Memory::format_tag::ab);
    const Memory::desc c({16, 16}, Memory::data_type::f32, Memory::format_tag::ab);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc made(engine(), a, a, c);
#else
    const dnnl::matmul::primitive_desc made(dnnl::matmul::desc(a, a, c), engine());
#endif
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

/// Whether oneDNN multiplies matrices of this type on this CPU. bfloat16 needs at least AVX-512.
bool has_products(DType dtype) {
  if (dtype != DType::bfloat16) return true;
  const UseOfLibrary onednn;
  if (!onednn.is_there()) return true;  // the product itself then detects that the process has ended
  // Newer versions of oneDNN have a slow product for any CPU, which computes one element after the other.
  static const bool bfloat16 = best_isa() >= Isa::avx512 && can_multiply_bfloat16();
  return bfloat16;
}

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::bfloat16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// During its lifetime, signals from outside do not interrupt this thread. Signals of faults in its own code do.
class SignalsWait {
 public:
  SignalsWait() {
    sigset_t waiting;
    sigfillset(&waiting);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&waiting, fault);
    ::pthread_sigmask(SIG_SETMASK, &waiting, &before_);
  }
  ~SignalsWait() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

 private:
  sigset_t before_;
};

struct Transposition {
  int64_t rows, columns, stride;
};

dnnl::memory::desc describe(const Matrix& matrix, int64_t rows, int64_t columns) {
  const dnnl::memory::dims strides =
      matrix.transposed ? dnnl::memory::dims{1, matrix.stride} : dnnl::memory::dims{matrix.stride, 1};
  return dnnl::memory::desc({rows, columns}, type_of(matrix.dtype), strides);
}

/// oneDNN crashes if it has no memory for generated code. The first product of a kind generates kernels for every
/// layout of the operands, which take up to 8.5 MiB with AVX-512.
void require_memory_for_code() { core::require_memory("matmul", size_t{24} << 20); }

/// A product, or a transposition of a into c.
struct Primitive {
  Primitive(const Transposition& t, int64_t kind_of_code)
      : kind(kind_of_code),
        a({t.rows, t.columns}, dnnl::memory::data_type::f32, dnnl::memory::dims{t.stride, 1}),
        c({t.rows, t.columns}, dnnl::memory::data_type::f32, dnnl::memory::dims{1, t.rows}) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::reorder::primitive_desc made(engine(), a, engine(), c, attributes);
    scratchpad = made.scratchpad_desc();
    primitive = dnnl::reorder(made);
  }

  Primitive(const Product& p, int64_t kind_of_code)
      : kind(kind_of_code), a(describe(p.a, p.m, p.k)), b(describe(p.b, p.k, p.n)), c(describe(p.c, p.m, p.n)) {
    // The library's own scratchpad belongs to the thread that created the primitive, but any thread may run it.
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (p.accumulate) {
      dnnl::post_ops ops;
      ops.append_sum(1.0f);
      attributes.set_post_ops(ops);
    }
    if (p.bias != nullptr) bias = dnnl::memory::desc({1, p.n}, type_of(p.bias_dtype), dnnl::memory::dims{p.n, 1});
#if DNNL_VERSION_MAJOR >= 3
    const auto made = p.bias != nullptr ? dnnl::matmul::primitive_desc(engine(), a, b, bias, c, attributes)
                                        : dnnl::matmul::primitive_desc(engine(), a, b, c, attributes);
#else
    const auto wanted = p.bias != nullptr ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
    const dnnl::matmul::primitive_desc made(wanted, attributes, engine());
#endif
    scratchpad = made.scratchpad_desc();
    primitive = dnnl::matmul(made);
  }

  int64_t kind;
  dnnl::memory::desc a, b, c, bias, scratchpad;
  dnnl::primitive primitive;
  mutable std::atomic<bool> has_run{false};  // some of its code is generated at the first run
};

/// All properties that a primitive depends on. One of the numbers is the kind of its code.
using Key = std::array<int64_t, 8>;
constexpr size_t kind_in_key = 6;

Key key_of(const Product& p) {
  int64_t flags = 0;
  for (const bool flag : {p.a.transposed, p.b.transposed, p.accumulate, p.bias != nullptr}) flags = 2 * flags + flag;
  for (const DType dtype : {p.a.dtype, p.b.dtype, p.c.dtype, p.bias_dtype}) {
    flags = 4 * flags + static_cast<int64_t>(dtype);
  }
  return {p.m, p.n, p.k, p.a.stride, p.b.stride, p.c.stride, flags, 0};
}

/// No product has a negative kind.
Key key_of(const Transposition& t) { return {t.rows, t.columns, 0, t.stride, 0, 0, -1, 0}; }

struct KeyHash {
  size_t operator()(const Key& key) const {
    return core::digest_of({reinterpret_cast<const char*>(key.data()), sizeof key}).low;
  }
};

/// Primitives created so far. Creating one generates code, which may take longer than a product.
class Cache {
 public:
  template <class Work>
  std::shared_ptr<const Primitive> find_or_make(const Work& work) {
    const Key key = key_of(work);
    {
      const std::shared_lock lock(mutex_);
      const auto found = primitives_.find(key);
      if (found != primitives_.end()) return found->second;
    }
    const std::unique_lock lock(mutex_);  // all threads start with the same shapes: one creates them, the others wait
    if (const auto found = primitives_.find(key); found != primitives_.end()) return found->second;
    const std::lock_guard memory(memory_mutex_);
    require_memory_for_code();
    const auto made = std::make_shared<const Primitive>(work, key[kind_in_key]);
    // Bounds the size of the cache if shapes keep changing. Clearing it is rare and cheap.
    if (primitives_.size() >= capacity) primitives_.clear();
    return primitives_.emplace(key, made).first->second;
  }

  /// Call this after code of this kind has been generated and run. The caller must hold memory_mutex().
  void has_run(int64_t kind) {
    if (kinds_.insert(kind).second) wait_at_the_end_for_users();
  }

  /// Held while code is generated and while a workspace grows, so that memory that was checked stays available.
  std::mutex& memory_mutex() { return memory_mutex_; }

  /// Whether another thread held the lock when this process was forked.
  bool is_locked() {
    const std::unique_lock primitives(mutex_, std::try_to_lock);
    const std::unique_lock memory(memory_mutex_, std::try_to_lock);
    return !primitives.owns_lock() || !memory.owns_lock();
  }

 private:
  static constexpr size_t capacity = 1024;
  std::shared_mutex mutex_;
  std::mutex memory_mutex_;
  std::set<int64_t> kinds_;  // kinds of code that has run
  std::unordered_map<Key, std::shared_ptr<const Primitive>, KeyHash> primitives_;
};

/// Never destroyed, like the engine. A forked child keeps it unless another thread held the lock.
Cache& cache() {
  static std::atomic<Cache*> current{nullptr};
  static std::atomic<Cache*> abandoned{nullptr};
  static std::once_flag first_use;
  std::call_once(first_use, [] {
    current.store(new Cache);
    ::pthread_atfork(nullptr, nullptr, [] {
      if (current.load()->is_locked()) abandoned.store(current.exchange(new Cache));
    });
  });
  return *current.load();
}

/// The calling thread's workspace, as large as its largest product needs.
void* workspace(size_t bytes) {
  thread_local std::shared_ptr<void> memory;
  thread_local size_t size = 0;
  if (size < bytes) {
    const std::lock_guard growing(cache().memory_mutex());
    memory.reset();
    size = 0;
    memory = core::allocate(bytes, false);
    size = bytes;
  }
  return memory.get();
}

/// Runs the primitive on the operands that are not null.
void execute(const Primitive& made, const void* a, const void* b, void* c, const void* bias) {
  dnnl::engine& cpu = engine();
  thread_local dnnl::stream stream(cpu);
  const auto memory = [&](const dnnl::memory::desc& desc, const void* data) {
    return dnnl::memory(desc, cpu, const_cast<void*>(data));
  };
  std::unordered_map<int, dnnl::memory> arguments{
      {DNNL_ARG_SRC, memory(made.a, a)},
      {DNNL_ARG_DST, memory(made.c, c)},
      {DNNL_ARG_SCRATCHPAD, memory(made.scratchpad, workspace(made.scratchpad.get_size()))}};
  if (b != nullptr) arguments.emplace(DNNL_ARG_WEIGHTS, memory(made.b, b));
  if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, memory(made.bias, bias));
  std::unique_lock<std::mutex> generating;
  if (!made.has_run.load()) {
    generating = std::unique_lock(cache().memory_mutex());
    require_memory_for_code();
  }
  {
    // Before version 3.11.2, the code that oneDNN generates for some float32 products uses the stack pointer for a heap
    // address, and a signal handler would write its frame there (oneDNN issue 4845).
    const SignalsWait signals_wait;
    made.primitive.execute(stream, arguments);
    stream.wait();
  }
  if (generating.owns_lock()) {
    cache().has_run(made.kind);
    made.has_run.store(true);
  }
}

bool run(const Product& p) {
  const UseOfLibrary onednn;
  if (!onednn.is_there()) return false;
  try {
    engine();  // must run before any other use of oneDNN
    const OneThread one_thread;
    execute(*cache().find_or_make(p), p.a.data, p.b.data, p.c.data, p.bias);
    return true;
  } catch (const dnnl::error& error) {
    fail("[matmul] oneDNN cannot multiply [{}, {}] {} by [{}, {}] {}: {}", p.m, p.k, name_of(p.a.dtype), p.k, p.n,
         name_of(p.b.dtype), error.what());
  }
}

bool transpose(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to) {
  const UseOfLibrary onednn;
  if (!onednn.is_there()) return false;
  try {
    engine();
    const OneThread one_thread;
    execute(*cache().find_or_make(Transposition{rows, columns, stride}), from, nullptr, to, nullptr);
    return true;
  } catch (const dnnl::error& error) {
    fail("[matmul] oneDNN cannot transpose [{}, {}]: {}", rows, columns, error.what());
  }
}

std::function<void()> product_in_own_layout(DType dtype, int64_t size) {
  using Memory = dnnl::memory;
  const dnnl::engine& cpu = engine();
  const OneThread one_thread;  // primitives are created for a given number of threads
  const Memory::desc any({size, size}, type_of(dtype), Memory::format_tag::any);
  const Memory::desc rows({size, size}, type_of(dtype), Memory::format_tag::ab);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc made(cpu, any, any, rows, attributes);
#else
  const dnnl::matmul::primitive_desc made(dnnl::matmul::desc(any, any, rows), attributes, cpu);
#endif
  std::vector<std::shared_ptr<void>> buffers;
  const auto operand = [&](const Memory::desc& desc, uint8_t byte) {
    const size_t bytes = std::max<size_t>(desc.get_size(), 1);
    buffers.push_back(core::allocate(bytes, false));
    std::memset(buffers.back().get(), byte, bytes);
    return Memory(desc, cpu, buffers.back().get());
  };
  constexpr uint8_t small = 0x3c;  // numbers of about 0.01 in either data type
  const std::unordered_map<int, Memory> arguments{{DNNL_ARG_SRC, operand(made.src_desc(), small)},
                                                  {DNNL_ARG_WEIGHTS, operand(made.weights_desc(), small)},
                                                  {DNNL_ARG_DST, operand(made.dst_desc(), 0)},
                                                  {DNNL_ARG_SCRATCHPAD, operand(made.scratchpad_desc(), 0)}};
  return [buffers, arguments, primitive = dnnl::matmul(made)] {
    const OneThread during;
    dnnl::stream stream(engine());
    primitive.execute(stream, arguments);
    stream.wait();
  };
}

/// With AVX2, oneDNN reads other layouts in place in small products. With AVX-512, all layouts are equally fast.
bool prefers_inner_first(DType dtype) { return dtype == DType::float32 && best_isa() == Isa::avx2; }

}  // namespace

const ProductProvider& product_provider() {
  static constexpr ProductProvider onednn{.name = "oneDNN",
                                          .description = describe,
                                          .has_products = has_products,
                                          .prefers_inner_first = prefers_inner_first,
                                          .multiply = run,
                                          .transpose = transpose,
                                          .product_in_own_layout = product_in_own_layout};
  return onednn;
}

}  // namespace alibi::nn
