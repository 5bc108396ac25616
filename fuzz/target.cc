#include "target.h"

namespace alibi::fuzz {

const std::vector<Target>& targets() {
  static const std::vector<Target> all = {safetensors(),   gguf(),       config(),     family(), tokenizer_json(),
                                          sentencepiece(), token_file(), checkpoint(), request()};
  return all;
}

}  // namespace alibi::fuzz
