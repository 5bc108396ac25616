#include "core/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <iterator>
#include <string>

#include "temporary_folder.h"
#include "testing.h"

namespace alibi {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

TEST(AppendFile, KeepsWhatIsThereAndGrows) {
  const test::TemporaryFolder folder;
  folder.write("log", "one\n");
  {
    AppendFile file(folder / "log");
    file.append("two\n");
    EXPECT_EQ(read_file(folder / "log"), "one\ntwo\n");  // before it is closed: another process may read along
    file.append("three\n");
    file.sync();
  }
  EXPECT_EQ(read_file(folder / "log"), "one\ntwo\nthree\n");
  expect_error([&] { AppendFile(folder / "nowhere" / "log"); }, "nowhere");
}

TEST(AppendFile, AFullDiskIsAnError) {
  const test::TemporaryFolder folder;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  AppendFile file(folder / "log");
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_NO_THROW(file.append(std::string(900, 'x')));
  expect_error([&] { file.append(std::string(200, 'y')); }, "log");
  expect_error([&] { write_file(folder / "whole", std::string(2000, 'z')); }, "whole");
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_FALSE(fs::exists(folder / "whole"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

TEST(Files, LeftoversAreKnownByTheirNames) {
  for (const char* name : {"a.12.0.part", "model.safetensors.4711.23.part", "folder/config.json.1.1.part"}) {
    EXPECT_TRUE(is_left_by_write_file(name)) << name;
  }
  for (const char* name : {"", "a", "a.part", "part", "a.12.part", "a.12.x.part", "a.12.0.parts", "a.12..part",
                           "song.part", "2.1.part.txt"}) {
    EXPECT_FALSE(is_left_by_write_file(name)) << name;
  }
}

TEST(Files, RenamingWhatIsNotThereIsAnError) {
  const test::TemporaryFolder folder;
  fs::create_directory(folder / "a");
  folder.write("a/file", "x");
  rename_synced(folder / "a", folder / "b");
  EXPECT_TRUE(fs::exists(folder / "b" / "file"));
  expect_error([&] { rename_synced(folder / "a", folder / "c"); }, "No such file");
}

TEST(FolderLock, HoldsUntilItEnds) {
  const test::TemporaryFolder folder;
  {
    const FolderLock lock(folder.path());
    expect_error([&] { FolderLock another(folder.path()); }, "another process");
  }
  EXPECT_NO_THROW(FolderLock(folder.path()));
  expect_error([&] { FolderLock nowhere(folder / "nowhere"); }, "nowhere");
}

}  // namespace
}  // namespace alibi
