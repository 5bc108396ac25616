// alibi bench generate.
#pragma once

namespace CLI {
class App;
}

namespace alibi::cli {

/// To the group of benchmarks.
void add_bench_generate(CLI::App& bench);

}  // namespace alibi::cli
