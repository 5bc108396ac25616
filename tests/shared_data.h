// Where the files lie that tests read.
#pragma once

#include <filesystem>

namespace alibi::test {

/// Larger texts that lie beside the project on some machines: the folder, whether it exists or not. The environment
/// variable ALIBI_SHARED_DATA names another one.
std::filesystem::path shared_data();

/// The folder of the tests' sources, for numbers that a test compares with and that are part of the project.
std::filesystem::path test_sources();

}  // namespace alibi::test
