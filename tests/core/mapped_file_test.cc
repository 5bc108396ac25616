#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "core/files.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::core {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

const size_t kPage = static_cast<size_t>(::sysconf(_SC_PAGESIZE));

int64_t sum_of(std::span<const std::byte> bytes) {
  int64_t sum = 0;
  for (const std::byte byte : bytes) sum += std::to_integer<int64_t>(byte);
  return sum;
}

TEST(MappedFile, HoldsWhatTheFileHolds) {
  const test::TemporaryFolder folder;
  folder.write("empty", "");
  const MappedFile empty(folder / "empty");
  EXPECT_TRUE(empty.bytes().empty());
  check_mapped(empty.bytes().data());
  MappedFile first(folder.write("first", std::string(kPage + 1, 'a'))), second(folder.write("second", "b"));
  EXPECT_EQ(sum_of(first.bytes()), static_cast<int64_t>(kPage + 1) * 'a');
  first = std::move(second);
  EXPECT_EQ(sum_of(first.bytes()), 'b');
  check_mapped(first.bytes().data());
  const int local = 0;
  check_mapped(&local);
  check_mapped(nullptr);
}

TEST(MappedFile, AFileThatGrowsOrIsReplacedIsFine) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.write("file", std::string(100, 'a'));
  const MappedFile mapped(path);
  AppendFile(path).append("more");
  check_mapped(mapped.bytes().data());
  write_file(path, "");
  check_mapped(mapped.bytes().data());
  EXPECT_EQ(sum_of(mapped.bytes()), 100 * 'a');
}

TEST(MappedFile, AFileThatShrinksIsAnErrorAndNoCrash) {
  const test::TemporaryFolder folder;
  const size_t pages = 64;
  const fs::path path = folder.write("file", std::string(pages * kPage, 'a'));
  const fs::path other = folder.write("other", std::string(pages * kPage, 'b'));
  const MappedFile mapped(path), neighbour(other);
  fs::resize_file(path, kPage);
  // Several threads meet the missing pages at once, each at another one first.
  std::vector<std::thread> threads;
  std::vector<int64_t> sums(8);
  for (size_t t = 0; t < sums.size(); ++t) {
    threads.emplace_back([&, t] {
      const size_t from = kPage * (1 + t * 7);
      sums[t] = sum_of(mapped.bytes().subspan(from)) + sum_of(mapped.bytes().first(from));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums, std::vector<int64_t>(sums.size(), static_cast<int64_t>(kPage) * 'a'));
  for (const size_t at : {size_t{0}, kPage, pages * kPage - 1}) {
    expect_error([&] { check_mapped(&mapped.bytes()[at]); }, "was truncated");
  }
  EXPECT_EQ(sum_of(neighbour.bytes()), static_cast<int64_t>(pages * kPage) * 'b');
  check_mapped(neighbour.bytes().data());
  fs::resize_file(path, pages * kPage);  // as large as before, but what was read was not in it
  expect_error([&] { check_mapped(mapped.bytes().data()); }, "the file changed or its disk");
}

TEST(MappedFile, AnEndThatIsMissedInItsLastPageIsAnErrorToo) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.write("file", "12345678");
  const MappedFile mapped(path);
  fs::resize_file(path, 4);
  EXPECT_EQ(sum_of(mapped.bytes().subspan(4)), 0);
  expect_error([&] { check_mapped(mapped.bytes().data()); }, "4 bytes now, expected 8");
}

TEST(MappedFile, APlaceIsUsedAgain) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.write("file", std::string(3 * kPage, 'a'));
  for (int i = 0; i < 3; ++i) {
    const MappedFile mapped(path);
    check_mapped(mapped.bytes().data());  // nothing is left of the torn one before
    fs::resize_file(path, kPage);
    EXPECT_EQ(sum_of(mapped.bytes()), static_cast<int64_t>(kPage) * 'a');
    expect_error([&] { check_mapped(mapped.bytes().data()); }, "was truncated");
    folder.write("file", std::string(3 * kPage, 'a'));
  }
}

TEST(MappedFile, MapsThatComeAndGoDoNotDisturb) {
  const test::TemporaryFolder folder;
  folder.write("steady", std::string(2 * kPage, 'a'));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::string name = "file" + std::to_string(t);
      for (int i = 0; i < 100; ++i) {
        const fs::path path = folder.write(name, std::string(4 * kPage, 'a'));
        const MappedFile mapped(path), steady(folder / "steady");
        fs::resize_file(path, kPage);
        EXPECT_EQ(sum_of(mapped.bytes()), static_cast<int64_t>(kPage) * 'a');
        EXPECT_THROW(check_mapped(mapped.bytes().data()), Error);
        EXPECT_EQ(sum_of(steady.bytes()), static_cast<int64_t>(2 * kPage) * 'a');
        check_mapped(steady.bytes().data());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// In a process of its own: reads a page that is gone of a map that is not ours.
void meet_a_foreign_fault(const fs::path& path) {
  const MappedFile ours(path);
  std::FILE* file = std::fopen(path.c_str(), "r");
  const auto* foreign =
      static_cast<const volatile char*>(::mmap(nullptr, 2 * kPage, PROT_READ, MAP_SHARED, ::fileno(file), 0));
  fs::resize_file(path, 0);
  [[maybe_unused]] const char read = foreign[kPage];
}

TEST(MappedFileDeathTest, FaultsOfOthersGoWhereTheyWent) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // so that the handler is not installed yet
  const test::TemporaryFolder folder;
  const auto path = [&] { return folder.write("file", std::string(2 * kPage, 'a')); };
  const auto plain = [](int) { ::_exit(7); };
  struct sigaction with_address {};
  with_address.sa_flags = SA_SIGINFO;
  with_address.sa_sigaction = [](int, siginfo_t* info, void* context) {
    ::_exit(info->si_addr != nullptr && context != nullptr ? 8 : 9);
  };
  // Sanitizers have a handler of their own; SIG_DFL instead.
  EXPECT_EXIT((std::signal(SIGBUS, SIG_DFL), meet_a_foreign_fault(path())), testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT((std::signal(SIGBUS, plain), meet_a_foreign_fault(path())), testing::ExitedWithCode(7), "");
  EXPECT_EXIT((::sigaction(SIGBUS, &with_address, nullptr), meet_a_foreign_fault(path())), testing::ExitedWithCode(8),
              "");
  // One that is sent, and no fault.
  EXPECT_EXIT((std::signal(SIGBUS, SIG_DFL), MappedFile(path()), ::raise(SIGBUS)), testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT((std::signal(SIGBUS, plain), MappedFile(path()), ::raise(SIGBUS)), testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace alibi::core
