#include "core/checksum.h"

#include <gtest/gtest.h>

#include "temporary_folder.h"
#include "testing.h"

namespace alibi::core {
namespace {

TEST(Checksum, IsWhatOtherProgramsPrint) {
  // printf '' | xxh64sum, and so on.
  EXPECT_EQ(xxh64(""), "ef46db3751d8e999");
  EXPECT_EQ(xxh64("hello\n"), "e4c191d091bd8853");
  const test::TemporaryFolder folder;
  EXPECT_EQ(xxh64_of_file(folder.write("a", "hello\n")), "e4c191d091bd8853");
  EXPECT_EQ(xxh64_of_file(folder.write("b", "")), "ef46db3751d8e999");
  test::expect_error([&] { xxh64_of_file(folder / "c"); }, (folder / "c").string());
}

}  // namespace
}  // namespace alibi::core
