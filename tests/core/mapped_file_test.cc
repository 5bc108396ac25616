#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "core/files.h"
#include "temporary_folder.h"

namespace alibi::core {
namespace {

const size_t kPage = static_cast<size_t>(::sysconf(_SC_PAGESIZE));

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, HoldsWhatTheFileHolds) {
  const test::TemporaryFolder folder;
  folder.write("empty", "");
  EXPECT_TRUE(MappedFile(folder / "empty").bytes().empty());
  const std::string text = std::string(kPage, 'a') + "b";
  MappedFile first(folder.write("first", text)), second(folder.write("second", "c"));
  EXPECT_EQ(text_of(first), text);
  first = std::move(second);
  EXPECT_EQ(text_of(first), "c");
}

TEST(MappedFile, KnowsWhatIsMapped) {
  const test::TemporaryFolder folder;
  const int local = 0;
  EXPECT_FALSE(is_mapped(&local));
  EXPECT_FALSE(is_mapped(nullptr));
  const std::byte* begin = nullptr;
  {
    const MappedFile one(folder.write("one", std::string(2 * kPage, 'a'))), other(folder.write("other", "b"));
    begin = one.bytes().data();
    for (const std::byte* byte : {begin, begin + kPage, begin + 2 * kPage - 1, other.bytes().data()}) {
      EXPECT_TRUE(is_mapped(byte));
    }
    EXPECT_FALSE(is_mapped(&local));
  }
  EXPECT_FALSE(is_mapped(begin));
}

TEST(MappedFile, AFileThatGrowsOrIsReplacedIsFine) {
  const test::TemporaryFolder folder;
  const std::filesystem::path path = folder.write("file", std::string(100, 'a'));
  const MappedFile mapped(path);
  AppendFile(path).append("more");
  write_file(path, "");
  EXPECT_EQ(text_of(mapped), std::string(100, 'a'));
}

}  // namespace
}  // namespace alibi::core
