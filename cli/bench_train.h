// `alibi bench train`.
#pragma once

namespace CLI {
class App;
}

namespace alibi::cli {

void add_bench_train(CLI::App& bench);

}  // namespace alibi::cli
