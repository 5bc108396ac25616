// Runs the seeds of each target, which it must take, and every file of its corpus, which must not end the process.
//   fuzz_replay CORPUS             all targets; CORPUS holds a folder for each
//   fuzz_replay CORPUS --write     writes the seeds into the corpus first
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "harness.h"
#include "target.h"

namespace {

using namespace alibi::fuzz;

void announce(std::string_view target, const std::string& input) {
  std::printf("%.*s: %s\n", static_cast<int>(target.size()), target.data(), input.c_str());
  std::fflush(stdout);  // if the process ends, the last line tells where
}

void replay(const Target& target, const std::filesystem::path& corpus, bool write) {
  const std::vector<Seed> seeds = target.seeds();
  demand(!seeds.empty(), "every target has a seed");
  for (const Seed& seed : seeds) {
    announce(target.name, "seed " + seed.name);
    demand(target.run(seed.input), "seeds are taken");
    if (!write) continue;
    std::filesystem::create_directories(corpus / target.name);
    write_file(corpus / target.name / seed.name, seed.input);
  }
  const Files files = files_of(corpus / target.name);
  demand(!files.empty(), "the corpus holds files of every target");
  size_t taken = 0;
  for (const auto& [name, input] : files) {
    announce(target.name, name);
    taken += target.run(input);
  }
  announce(target.name, std::to_string(taken) + " of " + std::to_string(files.size()) + " files taken");
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool write = arguments.size() == 2 && arguments[1] == "--write";
  if (arguments.size() != 1 && !write) {
    std::fprintf(stderr, "usage: %s CORPUS [--write]\n", argv[0]);
    return 2;
  }
  for (const Target& target : targets()) replay(target, arguments[0], write);
}
