#include "shared_data.h"

#include <cstdlib>

namespace alibi::test {

std::filesystem::path shared_data() {
  const char* named = std::getenv("ALIBI_SHARED_DATA");
  return named != nullptr ? std::filesystem::path(named) : std::filesystem::path(ALIBI_TEST_DATA_DIR);
}

std::filesystem::path test_sources() { return ALIBI_TEST_SOURCE_DIR; }

}  // namespace alibi::test
