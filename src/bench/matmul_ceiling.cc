#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <utility>
#include <vector>

#include "alibi/runtime.h"
#include "bench/ceilings.h"
#include "bench/timing.h"
#include "core/format.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "nn/onednn_engine.h"
#include "nn/products.h"

namespace alibi::bench {
struct MatmulCeiling::Products {
  /// The product of one thread.
  struct Operands {
    std::shared_ptr<void> memory_of_a, memory_of_b, memory_of_c, memory_of_scratchpad;
    dnnl::memory a, b, c, scratchpad;
  };

  static std::shared_ptr<void> memory_for(const dnnl::memory::desc& desc) {
    return core::allocate(std::max<size_t>(desc.get_size(), 1), true);
  }

  Products(DType dtype, Layout layout, int64_t n) : size(n) {
    dnnl::engine& engine = nn::engine();
    using Memory = dnnl::memory;
    const auto type = dtype == DType::bfloat16 ? Memory::data_type::bf16 : Memory::data_type::f32;
    const auto tag = layout == Layout::packed ? Memory::format_tag::any : Memory::format_tag::ab;
    const Memory::desc a({n, n}, type, tag), b({n, n}, type, tag), c({n, n}, type, Memory::format_tag::ab);
    // The library's own scratchpad belongs to the thread that created the primitive, but every thread runs this one.
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc made(engine, a, b, c, attributes);
#else
    const dnnl::matmul::primitive_desc made(dnnl::matmul::desc(a, b, c), attributes, engine);
#endif
    matmul = dnnl::matmul(made);
    for (int thread = 0; thread < threads(); ++thread) {
      Operands mine;
      mine.memory_of_a = memory_for(made.src_desc());
      mine.memory_of_b = memory_for(made.weights_desc());
      mine.memory_of_c = memory_for(made.dst_desc());
      mine.memory_of_scratchpad = memory_for(made.scratchpad_desc());
      mine.a = Memory(made.src_desc(), engine, mine.memory_of_a.get());
      mine.b = Memory(made.weights_desc(), engine, mine.memory_of_b.get());
      mine.c = Memory(made.dst_desc(), engine, mine.memory_of_c.get());
      mine.scratchpad = Memory(made.scratchpad_desc(), engine, mine.memory_of_scratchpad.get());
      operands.push_back(std::move(mine));
      for (Memory* memory : {&operands.back().a, &operands.back().b}) {
        auto* bytes = static_cast<uint8_t*>(memory->get_data_handle());
        std::fill_n(bytes, memory->get_desc().get_size(), uint8_t{0x3c});  // about 0.01 in either data type
      }
    }
  }

  /// Runs the product and returns its rate.
  double run() {
    const double seconds = seconds_of([&] {
      core::parallel_for(static_cast<int64_t>(operands.size()), [&](int64_t thread) {
        const nn::OneThread one_thread;
        Operands& mine = operands[static_cast<size_t>(thread)];
        dnnl::stream stream(nn::engine());
        for (int i = 0; i < repeats; ++i) {
          matmul.execute(stream, {{DNNL_ARG_SRC, mine.a},
                                  {DNNL_ARG_WEIGHTS, mine.b},
                                  {DNNL_ARG_DST, mine.c},
                                  {DNNL_ARG_SCRATCHPAD, mine.scratchpad}});
        }
        stream.wait();
      });
    });
    const auto n = static_cast<double>(size);
    return 2 * n * n * n * static_cast<double>(repeats) * static_cast<double>(operands.size()) / seconds;
  }

  int64_t size;
  int repeats = 1;
  dnnl::matmul matmul;
  std::vector<Operands> operands;
};

MatmulCeiling::MatmulCeiling(DType dtype, Layout layout) {
  const nn::OneThread one_thread;  // primitives are created for a given number of threads
  for (const int64_t size : {512, 1024, 1536}) {
    auto products = std::make_unique<Products>(dtype, layout, size);
    products->repeats = static_cast<int>(std::max<int64_t>(1, (int64_t{1} << 30) / (size * size * size)));
    products->run();  // generates the code
    double best = 0;
    for (int run = 0; run < 2; ++run) best = std::max(best, products->run());
    if (best <= best_) continue;
    best_ = best;
    fastest_ = std::move(products);
  }
}
MatmulCeiling::~MatmulCeiling() = default;

double MatmulCeiling::run() {
  const double rate = fastest_->run();
  best_ = std::max(best_, rate);
  return rate;
}

int64_t MatmulCeiling::size() const { return fastest_->size; }

MatmulCeilings::MatmulCeilings(DType type)
    : asked_for(type),
      dtype(nn::product_provider().has_products(type) ? type : DType::float32),
      plain(dtype, MatmulCeiling::Layout::plain),
      packed(dtype, MatmulCeiling::Layout::packed) {}

std::string MatmulCeilings::describe() const {
  const std::string rate = fmt::format("{} GFLOP/s", core::format_integer(std::llround(best() / 1e9)));
  if (dtype == asked_for) return rate;
  return fmt::format("{} in {}; products in {} are left out, because oneDNN does not support them on this CPU", rate,
                     name_of(dtype), name_of(asked_for));
}

}  // namespace alibi::bench
