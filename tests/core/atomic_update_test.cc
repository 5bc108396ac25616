#include "core/atomic_update.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <exception>
#include <fstream>
#include <set>
#include <string>

#include "core/files.h"
#include "killed_child.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::core {
namespace {

namespace fs = std::filesystem;
using test::ChildEnd;
using test::expect_error;
using test::TemporaryFolder;

const std::set<std::string> owned = {"marker", "a", "only_old", "only_new"};

void put(const fs::path& file, const char* content) { std::ofstream(file) << content; }  // not synced: quicker

void write_old(const fs::path& part) {
  for (const char* name : {"a", "only_old", "marker"}) put(part / name, "old");
}

void write_new(const fs::path& part) {
  for (const char* name : {"a", "only_new", "marker"}) put(part / name, "new");
}

/// Names and contents, "a=old marker=old": what a reader gets.
std::string read(const fs::path& folder) {
  return read_atomically(folder, "marker", [](const fs::path& place) {
    std::set<std::string> all;
    for (const std::string& name : owned) {
      if (fs::exists(place / name)) all.insert(name + "=" + read_file(place / name));
    }
    return fmt::format("{}", fmt::join(all, " "));
  });
}

constexpr const char* kOld = "a=old marker=old only_old=old";
constexpr const char* kNew = "a=new marker=new only_new=new";

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

TEST(AtomicUpdate, FilesChangeAndOthersStay) {
  const TemporaryFolder folder;
  const fs::path model = folder / "made" / "here";
  update_atomically(model, owned, write_old);
  EXPECT_EQ(read(model), kOld);
  folder.write("made/here/log", "kept");
  folder.write("made/here/checkpoints/1", "kept");
  update_atomically(model, owned, write_new);
  EXPECT_EQ(read(model), kNew);
  // In their places, for other programs.
  EXPECT_EQ(names_in(model), (std::set<std::string>{"a", "marker", "only_new", "log", "checkpoints"}));
  EXPECT_EQ(read_file(model / "a"), "new");
}

TEST(AtomicUpdate, AWriterThatFailsChangesNothing) {
  const TemporaryFolder folder;
  update_atomically(folder.path(), owned, write_old);
  expect_error(
      [&] {
        update_atomically(folder.path(), owned, [](const fs::path& part) {
          write_new(part);
          fail("[test] no space left");
        });
      },
      "no space left");
  EXPECT_EQ(read(folder.path()), kOld);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"a", "marker", "only_old"}));
}

TEST(AtomicUpdate, KilledBeforeAnyChangeThereIsTheOldOrTheNew) {
  bool changed = false;
  int change = 0;
  for (ChildEnd end = ChildEnd::killed; end == ChildEnd::killed; ++change) {
    SCOPED_TRACE(change);
    const TemporaryFolder folder;
    update_atomically(folder.path(), owned, write_old);
    end = test::run_killed(change, [&] { update_atomically(folder.path(), owned, write_new); });
    if (end == ChildEnd::cannot_trace) GTEST_SKIP() << "this machine does not let a process trace its child";
    const std::string found = read(folder.path());
    // Old, then new from one point on.
    ASSERT_EQ(found, changed || found == kNew ? kNew : kOld);
    changed = found == kNew;
    // Whatever was left, killed again at the next start: what is read does not change.
    test::run_killed(change % 7, [&] { update_atomically(folder.path(), owned, [](const fs::path&) { ::_exit(0); }); });
    ASSERT_EQ(read(folder.path()), found);
    update_atomically(folder.path(), owned, write_old);
    ASSERT_EQ(read(folder.path()), kOld);
    ASSERT_EQ(names_in(folder.path()), (std::set<std::string>{"a", "marker", "only_old"}));
  }
  EXPECT_TRUE(changed);
  EXPECT_GT(change, 20);  // number of changes before the kill
}

TEST(AtomicUpdate, EachStateOnTheWayIsReadAsAWhole) {
  const TemporaryFolder folder;
  const fs::path& model = folder.path();
  const fs::path part = model / ".saving.77.part";
  update_atomically(model, owned, write_old);
  fs::create_directory(part);
  put(part / "a", "new");
  EXPECT_EQ(read(model), kOld);
  write_new(part);
  EXPECT_EQ(read(model), kOld);
  fs::rename(part, model / ".saved");  // the moment of change
  EXPECT_EQ(read(model), kNew);
  fs::create_directory(part);
  for (const char* name : {"marker", "only_new", "a"}) {
    fs::create_hard_link(model / ".saved" / name, part / name);
    EXPECT_EQ(read(model), kNew);
    fs::rename(part / name, model / name);
    EXPECT_EQ(read(model), kNew);
  }
  fs::remove(model / "only_old");
  EXPECT_EQ(read(model), kNew);
  fs::rename(model / ".saved", part / ".saved");
  EXPECT_EQ(read(model), kNew);
  fs::remove(part / ".saved" / "a");
  EXPECT_EQ(read(model), kNew);
}

TEST(AtomicUpdate, ReadersOfAFolderThatIsBeingWrittenSeeOneWriting) {
  const TemporaryFolder folder;
  update_atomically(folder.path(), owned, write_old);
  const pid_t writer = ::fork();
  if (writer == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    try {
      for (;;) {
        update_atomically(folder.path(), owned, write_new);
        update_atomically(folder.path(), owned, write_old);
      }
    } catch (const std::exception&) {
      ::_exit(1);
    }
  }
  std::set<std::string> found;
  for (int i = 0; i < 2000 || (found.size() < 2 && i < 200000); ++i) found.insert(read(folder.path()));
  ::kill(writer, SIGKILL);
  ::waitpid(writer, nullptr, 0);
  EXPECT_EQ(found, (std::set<std::string>{kOld, kNew}));
}

TEST(AtomicUpdate, OneWriterAtATime) {
  const TemporaryFolder folder;
  const FolderLock lock(folder.path());
  expect_error([&] { update_atomically(folder.path(), owned, write_new); }, "in use by another process");
}

TEST(AtomicUpdate, AnErrorOfTheReaderIsTold) {
  const TemporaryFolder folder;
  int reads = 0;
  const auto fails = [&](const fs::path&) -> int {
    ++reads;
    fail("[test] damaged");
  };
  expect_error([&] { read_atomically(folder.path(), "marker", fails); }, "damaged");
  EXPECT_EQ(reads, 1);
  // One that is due to a change is not: it is read again.
  const int value = read_atomically(folder.path(), "marker", [&](const fs::path&) {
    if (++reads == 2) {
      folder.write("marker", "now it is there");
      fail("[test] damaged");
    }
    return reads;
  });
  EXPECT_EQ(value, 3);
  expect_error(
      [&] {
        read_atomically(folder.path(), "marker", [&](const fs::path&) {
          put(folder / "other", "new");
          fs::rename(folder / "other", folder / "marker");
          return 0;
        });
      },
      "during each of 100 attempts");
}

}  // namespace
}  // namespace alibi::core
