#include "text/documents.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "temporary_folder.h"
#include "testing.h"

namespace alibi::text {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TemporaryFolder;

std::vector<std::string> document_names(const std::vector<Document>& documents) {
  std::vector<std::string> names;
  for (const Document& document : documents) names.push_back(document.name);
  return names;
}

TEST(Documents, AFolderIsReadInBytewiseOrderOfRelativePaths) {
  const TemporaryFolder folder;
  for (const char* name : {"b", "a/z.txt", "a.txt", "B", "a-b", "\xc3\xa9", "a/y/x"}) folder.write(name, name);
  const auto documents = read_documents({folder.path().string()});
  EXPECT_EQ(document_names(documents),
            (std::vector<std::string>{"B", "a-b", "a.txt", "a/y/x", "a/z.txt", "b", "\xc3\xa9"}));
  for (const Document& document : documents) {
    EXPECT_EQ(document.text(), document.name);
    EXPECT_EQ(document.path, folder / document.name);
  }
  EXPECT_EQ(bytes_of(documents), 1 + 3 + 5 + 5 + 7 + 1 + 2);
}

TEST(Documents, HiddenEmptyAndBinaryFilesOfAFolderAreSkipped) {
  const TemporaryFolder folder;
  folder.write("text", "text");
  folder.write(".hidden", "text");
  folder.write(".git/config", "text");
  folder.write("empty", "");
  folder.write("binary", std::string("a\0b", 3));
  folder.write("late_binary", std::string(10000, 'x') + std::string(1, '\0'));
  folder.write("compressed", "\x42\x5a\x68\x39\x01\x02\x90\x91\x92\x93");  // bzip2, which is not read
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);                 // reading it would wait for ever
  FilesRead files;
  EXPECT_EQ(document_names(read_documents({folder.path().string()}, std::cin, kTextField, &files)),
            std::vector<std::string>{"text"});
  EXPECT_EQ(files.files, 5);
  std::vector<std::string> skipped;
  for (const SkippedFile& file : files.skipped) {
    skipped.push_back(std::filesystem::path(file.file).filename().string() + " " + file.reason);
  }
  EXPECT_EQ(skipped,
            (std::vector<std::string>{"binary is not text: it has a NUL byte",
                                      "compressed is not text: 6 of its 10 bytes are control characters or not "
                                      "UTF-8",
                                      "empty is empty", "late_binary is not text: byte 10000 is NUL"}));
  EXPECT_EQ(describe_skipped({3, {{"b", "is empty"}}}), "2 of 3 files are used; skipped: b (is empty)");
  EXPECT_EQ(describe_skipped({3, {}}), "");
  const auto kept = read_documents({folder.path().string()}, std::cin, kTextField, nullptr, EmptyFiles::keep);
  EXPECT_EQ(document_names(kept), (std::vector<std::string>{"empty", "text"}));
  EXPECT_EQ(kept.front().text(), "");
}

TEST(Documents, LinksAreFollowedLoopsEndAndFilesAreReadOnce) {
  const TemporaryFolder folder;
  folder.write("a/one", "1");
  folder.write("b/two", "2");
  folder.write("outside/three", "3");
  fs::create_directory_symlink(folder.path() / "a", folder.path() / "a" / "loop");
  fs::create_directory_symlink(folder.path(), folder.path() / "b" / "up");
  fs::create_directory_symlink(folder.path() / "outside", folder.path() / "a" / "linked");
  fs::create_symlink(folder.path() / "b" / "two", folder.path() / "a" / "second_name");
  fs::create_symlink(folder.path() / "nowhere", folder.path() / "a" / "dangling");
  EXPECT_EQ(document_names(read_documents({(folder / "a").string(), (folder / "b").string()})),
            (std::vector<std::string>{"linked/three", "one", "second_name"}));
  EXPECT_EQ(
      document_names(read_documents({(folder / "a").string(), (folder / "a").string(), (folder / "a/one").string()})),
      (std::vector<std::string>{"linked/three", "one", "second_name"}));
}

TEST(Documents, AFolderOfSeveralNamesHasTheFirstOfThem) {
  // Whatever the order in which the file system lists them.
  const TemporaryFolder folder;
  std::vector<std::string> expected;
  for (int i = 0; i < 8; ++i) {
    const std::string number = std::to_string(i);
    folder.write("outside" + number + "/text", number);
    fs::create_directories(folder / "in");
    for (const char* letter : {"z", "a", "m"}) {
      fs::create_directory_symlink(folder / ("outside" + number), folder / ("in/" + (letter + number)));
    }
    expected.push_back("a" + number + "/text");
  }
  EXPECT_EQ(document_names(read_documents({(folder / "in").string()})), expected);
}

TEST(Documents, InputsKeepTheirOrderAndAHiddenOneMayBeNamed) {
  const TemporaryFolder folder;
  const std::string b = folder.write("b", "B"), a = folder.write("a", "A"), hidden = folder.write(".h/.x", "H");
  std::istringstream input("from the pipe\n");
  const auto documents = read_documents({b, "-", a, hidden, (folder / ".h").string() + "/../a"}, input);
  EXPECT_EQ(document_names(documents), (std::vector<std::string>{"b", "-", "a", ".x"}));
  EXPECT_EQ(documents[1].text(), "from the pipe\n");
  EXPECT_EQ(documents[1].path, "-");
}

TEST(Documents, BadInputsAreNamedInTheError) {
  const TemporaryFolder folder;
  const std::string missing = (folder / "missing").string();
  expect_error([&] { read_documents({missing}); }, missing + ": no such file or folder");
  const std::string empty = folder.write("empty", "");
  expect_error([&] { read_documents({empty}); }, empty + ": is empty");
  const std::string binary = folder.write("binary", std::string("GIF\0", 4));
  expect_error([&] { read_documents({binary}); }, binary + ": is not text: byte 3 is NUL");
  expect_error([&] { read_documents({folder.path().string()}); }, "contains no text files");
  expect_error([&] { read_documents({"/dev/null"}); }, "neither a file nor a folder");
  expect_error([&] { read_documents({binary + "/below"}); }, binary + "/below: ");
  expect_error([&] { read_documents({""}); }, "no such file or folder");
  expect_error<UsageError>([&] { read_documents({}); }, "no text given");
}

TEST(Documents, StandardInputIsCheckedLikeAFile) {
  const auto read = [](const std::string& text, const std::vector<std::string>& inputs) {
    std::istringstream input(text);
    return read_documents(inputs, input);
  };
  expect_error([&] { read("", {"-"}); }, "standard input is empty");
  expect_error([&] { read(std::string(1, '\0'), {"-"}); }, "standard input is not text");
  expect_error<UsageError>([&] { read("text", {"-", "-"}); }, "only once");
}

}  // namespace
}  // namespace alibi::text
