// Larger texts that lie beside the project on some machines.
#pragma once

#include <cstdlib>
#include <filesystem>

namespace alibi::test {

/// The folder, whether it exists or not; the environment variable ALIBI_SHARED_DATA names another one.
inline std::filesystem::path shared_data() {
  const char* named = std::getenv("ALIBI_SHARED_DATA");
  return named != nullptr ? std::filesystem::path(named) : std::filesystem::path(ALIBI_TEST_DATA_DIR);
}

}  // namespace alibi::test
