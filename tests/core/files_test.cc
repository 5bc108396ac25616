#include "core/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <climits>
#include <cstring>
#include <filesystem>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "core/locks.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::core {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

int64_t entries_of(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

mode_t mode_of(const fs::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode : 0;
}

/// What a reader gets from a FIFO whose writer runs meanwhile.
template <class Write>
std::string through_fifo(const fs::path& fifo, const Write& write) {
  auto reader = std::async(std::launch::async, [&] {
    std::ifstream file(fifo, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  });
  write();
  return reader.get();
}

TEST(ReadFile, TakesRegularFilesOnly) {
  const test::TemporaryFolder folder;
  folder.write("file", std::string(100, 'x'));
  EXPECT_EQ(read_file(folder / "file"), std::string(100, 'x'));
  EXPECT_EQ(read_file(folder / "file", 100), std::string(100, 'x'));
  expect_error([&] { read_file(folder / "file", 99); }, "100 bytes, expected at most 99");
  folder.write("empty", "");
  EXPECT_EQ(read_file(folder / "empty", 0), "");
  fs::create_symlink("file", folder / "link");
  EXPECT_EQ(read_file(folder / "link").size(), 100u);

  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  fs::create_symlink("loop", folder / "loop");
  for (const auto& [path, what] : {std::pair{folder / "fifo", "is a FIFO, expected a regular file"},
                                   {folder.path(), "is a folder"},
                                   {fs::path("/dev/zero"), "is a device"},
                                   {folder / "nowhere", "No such file"},
                                   {folder / "loop", "symbolic"}}) {
    expect_error([&, path = path] { read_file(path); }, what);  // neither waits nor fills the memory
    expect_error([&, path = path] { MappedFile mapped(path); }, what);
  }
}

TEST(ReadFile, WhatDoesNotTellItsSizeIsRefused) {
  expect_error([] { read_file("/proc/self/status"); }, "more than the expected 0 bytes");
}

TEST(PathExists, TellsWhatCannotBeKnown) {
  const test::TemporaryFolder folder;
  folder.write("file", "x");
  fs::create_symlink("nowhere", folder / "dangling");
  fs::create_symlink("loop", folder / "loop");
  EXPECT_TRUE(path_exists(folder / "file"));
  EXPECT_TRUE(is_folder(folder.path()));
  EXPECT_FALSE(is_folder(folder / "file"));
  for (const char* name : {"dangling", "nowhere", "file/below"}) {
    EXPECT_FALSE(path_exists(folder / name)) << name;
    EXPECT_FALSE(is_folder(folder / name)) << name;
  }
  for (const char* name : {"loop", "loop/below"}) {
    expect_error([&] { path_exists(folder / name); }, name);
    expect_error([&] { is_folder(folder / name); }, "Too many levels of symbolic links");
  }
}

TEST(WriteFile, FollowsLinksAndReplacesTheirTarget) {
  const test::TemporaryFolder folder;
  fs::create_directory(folder / "far");
  folder.write("far/target", "old");
  fs::create_symlink("far/target", folder / "second");
  fs::create_symlink(folder / "second", folder / "first");
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat((folder / "first").c_str(), &before), 0);
  write_file(folder / "first", "new");
  EXPECT_TRUE(S_ISLNK(mode_of(folder / "first")) && S_ISLNK(mode_of(folder / "second")));
  EXPECT_EQ(read_file(folder / "far/target"), "new");
  ASSERT_EQ(::stat((folder / "first").c_str(), &after), 0);
  EXPECT_NE(before.st_ino, after.st_ino) << "not replaced: a crash could leave half of it";
  EXPECT_EQ(entries_of(folder / "far"), 1);

  fs::create_symlink("far/made", folder / "dangling");
  write_file(folder / "dangling", "made");
  EXPECT_EQ(read_file(folder / "far/made"), "made");
  fs::create_symlink("round", folder / "about");
  fs::create_symlink("about", folder / "round");
  expect_error([&] { write_file(folder / "round", ""); }, "round");
}

TEST(WriteFile, KeepsPermissions) {
  const test::TemporaryFolder folder;
  const mode_t mask = ::umask(022);
  write_file(folder / "new", "x");
  EXPECT_EQ(mode_of(folder / "new") & 07777u, 0644u);
  for (const mode_t mode : {0600u, 0664u, 0444u}) {
    if (mode == 0444u && ::geteuid() != 0) continue;
    ASSERT_EQ(::chmod((folder / "new").c_str(), mode), 0);
    write_file(folder / "new", "y");
    EXPECT_EQ(mode_of(folder / "new") & 07777u, mode);
  }
  ::umask(mask);
}

TEST(WriteFile, LongNamesHaveRoomBeside) {
  const test::TemporaryFolder folder;
  const fs::path path = folder / std::string(255, 'n');
  write_file(path, "x");
  EXPECT_EQ(read_file(path), "x");
  expect_error([&] { write_file(folder / std::string(256, 'n'), "x"); }, "too long");
}

TEST(WriteFile, FifosSocketsAndDevicesStayWhatTheyAre) {
  const test::TemporaryFolder folder;
  const fs::path fifo = folder / "fifo", link = folder / "link";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  fs::create_symlink("fifo", link);
  for (const fs::path& path : {fifo, link}) {
    check_output_file(path);  // neither waits nor opens: the reader would see an end
    EXPECT_EQ(through_fifo(fifo, [&] { write_file(path, "through"); }), "through");
  }
  EXPECT_TRUE(S_ISFIFO(mode_of(fifo)) && S_ISLNK(mode_of(link)));
  expect_error([&] { write_file_with_header(fifo, 1, [](const auto&) { return std::string("h"); }); },
               "not a regular file");

  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const fs::path socket = folder / "socket";
  std::strcpy(address.sun_path, socket.c_str());
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  write_file(socket, "through");
  const int connection = ::accept(listener, nullptr, nullptr);
  char got[16];
  EXPECT_EQ(std::string_view(got, static_cast<size_t>(::read(connection, got, sizeof got))), "through");
  ::close(connection);
  ::close(listener);
  EXPECT_TRUE(S_ISSOCK(mode_of(socket)));
  expect_error([&] { write_file(socket, "nobody listens"); }, "refused");

  fs::create_symlink("/dev/full", folder / "full");
  expect_error([&] { write_file(folder / "full", "x"); }, "No space left");
  EXPECT_TRUE(S_ISLNK(mode_of(folder / "full")));
  EXPECT_EQ(entries_of(folder.path()), 4);
}

TEST(WriteFile, OpenFilesAreWrittenWhereTheyAre) {
  const test::TemporaryFolder folder;
  const fs::path log = folder / "log";
  const int descriptor = ::open(log.c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_EQ(::write(descriptor, "before ", 7), 7);
  const std::string name = "fd/" + std::to_string(descriptor);
  fs::create_symlink("/proc/self/" + name, folder / "link");
  fs::create_symlink("/dev", folder / "dev");
  EXPECT_EQ(descriptor_of(folder / "link"), descriptor);
  EXPECT_EQ(descriptor_of("/dev/stdout"), 1);
  EXPECT_EQ(descriptor_of(log), std::nullopt);
  write_file("/dev/" + name, "one ");
  write_file("/proc/self/../self/" + name, "two ");
  write_file(folder / "link", "three ");
  ASSERT_EQ(::write(descriptor, "after", 5), 5);
  ::close(descriptor);
  EXPECT_EQ(read_file(log), "before one two three after");
  EXPECT_TRUE(S_ISLNK(mode_of(folder / "link")));
  expect_error([&] { write_file("/dev/" + name, "closed"); }, "Bad file descriptor");
  expect_error([&] { check_output_file("/dev/" + name); }, "Bad file descriptor");
  const int reading = ::open(log.c_str(), O_RDONLY);
  expect_error([&] { check_output_file("/dev/fd/" + std::to_string(reading)); }, "only for reading");
  ::close(reading);
}

TEST(WriteFile, FoldersAreNoFiles) {
  const test::TemporaryFolder folder;
  for (const fs::path& path : {folder.path(), folder / "new/"}) {
    expect_error([&] { write_file(path, "x"); }, "is a folder");
    expect_error([&] { check_output_file(path); }, "is a folder");
  }
  folder.write("file", "");
  expect_error([&] { check_output_file(folder / "file/below"); }, "is a regular file, expected a folder");
  check_output_file(folder / "made/for/it");
  EXPECT_TRUE(is_folder(folder / "made/for"));
  EXPECT_FALSE(path_exists(folder / "made/for/it"));
}

TEST(MakeFolder, FollowsLinks) {
  const test::TemporaryFolder folder;
  make_folder(folder / "a/b/c/");
  EXPECT_TRUE(is_folder(folder / "a/b/c"));
  fs::create_symlink("a/b/made", folder / "dangling");
  make_folder(folder / "dangling/");
  EXPECT_TRUE(S_ISLNK(mode_of(folder / "dangling")) && is_folder(folder / "a/b/made"));
  make_folder(folder / "dangling/below");
  EXPECT_TRUE(is_folder(folder / "a/b/made/below"));
  folder.write("file", "");
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  fs::create_symlink("loop", folder / "loop");
  expect_error([&] { make_folder(folder / "file"); }, "is a regular file, expected a folder");
  expect_error([&] { make_folder(folder / "file/below"); }, (folder / "file/below").c_str());
  expect_error([&] { make_folder(folder / "fifo"); }, "is a FIFO");
  expect_error([&] { make_folder(folder / "loop"); }, "loop");
  expect_error([&] { make_folder("/dev/stdout"); }, "is an open file");
}

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
  folder.write("old", "old");
  AppendFile file(folder / "log");
  {
    const test::FileSizeLimit limit(1000);
    EXPECT_NO_THROW(file.append(std::string(900, 'x')));
    expect_error([&] { file.append(std::string(200, 'y')); }, "log");
    for (const char* name : {"whole", "old"}) {
      expect_error([&] { write_file(folder / name, std::string(2000, 'z')); }, name);
    }
  }
  EXPECT_EQ(read_file(folder / "old"), "old");
  EXPECT_FALSE(fs::exists(folder / "whole"));
  EXPECT_EQ(entries_of(folder.path()), 2);
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

TEST(Files, WhatKilledWritersLeftIsRemovedByTheNextOne) {
  const test::TemporaryFolder folder;
  const std::string long_name(NAME_MAX, 'n'), of_long_name = std::string(NAME_MAX - 8, 'n') + ".12.0.part";
  const std::vector<std::string> others = {
      "a",          "part",      "a.part",       "a.12.part",  "a.12.x.part", "a.12.0.parts",
      "a.12..part", "song.part", "2.1.part.txt", "b.12.0.part"};
  for (const std::string& name : others) folder.write(name, name);
  folder.write("a.12.0.part", "left");
  folder.write("a.4711.23.part", "left");
  folder.write(of_long_name.substr(0, NAME_MAX - 10) + ".12.0.part", "left");
  const int writing = ::open(folder.write("a.13.0.part", "another process is writing").c_str(), O_RDWR);
  ASSERT_EQ(::flock(writing, LOCK_EX), 0);
  write_file(folder / "a", "new");
  write_file(folder / long_name, "new");
  for (const std::string& name : others) EXPECT_EQ(read_file(folder / name), name == "a" ? "new" : name);
  EXPECT_TRUE(fs::exists(folder / "a.13.0.part"));
  EXPECT_EQ(entries_of(folder.path()), std::ssize(others) + 2);
  ::close(writing);
  remove_left_files(folder.path());
  EXPECT_FALSE(fs::exists(folder / "a.13.0.part"));
  EXPECT_FALSE(fs::exists(folder / "b.12.0.part"));
  EXPECT_EQ(entries_of(folder.path()), std::ssize(others));
}

TEST(Files, AHeldFolderIsLockedByOneAtATime) {
  const test::TemporaryFolder folder;
  hold_folder(folder.path());
  hold_folder(folder.path());
  const auto try_other = [&] {  // as another process does
    const int other = ::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY);
    const bool locked = ::flock(other, LOCK_EX | LOCK_NB) == 0;
    ::close(other);
    return locked;
  };
  EXPECT_FALSE(try_other());
  {
    const FolderLock lock(folder.path());
    expect_error([&] { FolderLock again(folder.path()); }, "in use by another process");
  }
  const FolderLock lock(folder.path());
  EXPECT_FALSE(try_other());
}

TEST(Files, ALockedFileThatIsRemovedIsMadeAgain) {
  const test::TemporaryFolder folder;
  auto first = std::make_unique<FileLock>(folder / "a", "wait");
  expect_error([&] { FileLock again(folder / "a", "wait for it"); }, "in use by another process; wait for it");
  fs::remove(folder / "a");
  const FileLock second(folder / "a", "wait");
  first.reset();
  expect_error([&] { FileLock again(folder / "a", "wait"); }, "in use");
  expect_error([&] { FileLock lock(folder.path(), "wait"); }, "Is a directory");
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
}  // namespace alibi::core
