// Readers under fuzzing: a target for each format that comes from outside, run by libFuzzer (libfuzzer.cc) or on the
// files of the corpus (replay.cc).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace alibi::fuzz {

struct Seed {
  std::string name;
  std::string input;
};

struct Target {
  std::string_view name;  ///< and of its folder in the corpus
  /// Has the library read the input; returns whether it took it. Ends the process if the library did anything but take
  /// it or throw Error.
  bool (*run)(std::string_view input);
  /// Undamaged inputs, which run() must take: a target that refuses these would test little.
  std::vector<Seed> (*seeds)();
  /// A change that leaves the format whole: flipped bytes alone hardly get past a parser. The same seed gives the same.
  std::string (*mutate)(std::string_view input, unsigned seed);
};

Target safetensors();
Target gguf();
Target config();
Target family();
Target tokenizer_json();
Target sentencepiece();
Target token_file();
Target checkpoint();
Target request();

const std::vector<Target>& targets();

}  // namespace alibi::fuzz
