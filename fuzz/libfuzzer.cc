// libFuzzer's entries, built once for each target; ALIBI_FUZZ_TARGET is its name.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "target.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

const alibi::fuzz::Target& target() {
  using namespace alibi::fuzz;
  static const Target one = *std::find_if(targets().begin(), targets().end(),
                                          [](const Target& other) { return other.name == ALIBI_FUZZ_TARGET; });
  return one;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  target().run({reinterpret_cast<const char*>(data), size});
  return 0;
}

/// Every other change leaves the format whole.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (seed % 2 == 0) {
    const std::string before(reinterpret_cast<const char*>(data), size);
    const std::string after = target().mutate(before, seed / 2);
    if (after != before && after.size() <= max_size) {
      std::copy(after.begin(), after.end(), data);
      return after.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
