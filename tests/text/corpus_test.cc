#include "text/corpus.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "shared_data.h"
#include "temporary_folder.h"
#include "testing.h"
#include "text/text_encoding.h"

namespace alibi::text {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TemporaryFolder;

std::vector<Document> make_documents(int count, const std::string& root = "/one/place/") {
  std::vector<Document> documents;
  for (int i = 0; i < count; ++i) {
    const std::string name = "part" + std::to_string(i);
    documents.push_back({root + name, name, "text of " + name + "\n"});
  }
  return documents;
}

std::set<std::string> names_of(const std::vector<Document>& documents) {
  std::set<std::string> names;
  for (const Document& document : documents) names.insert(document.name);
  return names;
}

/// Nothing is lost, nothing is on both sides, and the bytes are counted.
void expect_partition(const Corpus& corpus, size_t count) {
  EXPECT_FALSE(corpus.train.empty());
  EXPECT_FALSE(corpus.valid.empty());
  EXPECT_EQ(corpus.train.size() + corpus.valid.size(), count);
  const auto trained = names_of(corpus.train);
  for (const std::string& name : names_of(corpus.valid)) EXPECT_FALSE(trained.contains(name)) << name;
  EXPECT_EQ(corpus.train_bytes, bytes_of(corpus.train));
  EXPECT_EQ(corpus.valid_bytes, bytes_of(corpus.valid));
}

TEST(Split, AboutOneFileInTenIsHeldOut) {
  const Corpus corpus = split_corpus(make_documents(3000));
  expect_partition(corpus, 3000);
  EXPECT_GT(corpus.valid.size(), 240u);
  EXPECT_LT(corpus.valid.size(), 360u);
}

TEST(Split, TheRuleIsFixed) {  // a change of the rule changes what published numbers mean
  EXPECT_EQ(names_of(split_corpus(make_documents(60)).valid),
            (std::set<std::string>{"part26", "part47", "part50", "part57"}));
}

TEST(Split, BothSidesHaveFilesHoweverFewThereAre) {
  for (int count = 2; count < 60; ++count) expect_partition(split_corpus(make_documents(count)), count);
}

TEST(Split, NeitherOrderNorPlaceMatters) {
  for (const int count : {2, 3, 10, 100}) {
    const auto expected = names_of(split_corpus(make_documents(count)).valid);
    auto documents = make_documents(count, "/another/");
    std::reverse(documents.begin(), documents.end());
    EXPECT_EQ(names_of(split_corpus(std::move(documents)).valid), expected);
  }
}

TEST(Split, TrainingTextKeepsItsOrder) {
  const Corpus corpus = split_corpus(make_documents(10));
  std::vector<int> order;
  for (const Document& document : corpus.train) order.push_back(std::stoi(document.name.substr(4)));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(Split, TheLargestFileTrainsAndAHundredthIsHeldOut) {
  for (int large = 0; large < 40; ++large) {
    auto documents = make_documents(40);
    documents[large] = {documents[large].path, documents[large].name, std::string(20000, 'x')};
    const Corpus corpus = split_corpus(std::move(documents));
    EXPECT_TRUE(names_of(corpus.train).contains("part" + std::to_string(large)));
    EXPECT_GE(corpus.valid_bytes * 100, corpus.train_bytes + corpus.valid_bytes);
  }
}

TEST(Split, CopiesCountAsOneFile) {
  auto documents = make_documents(100);
  const auto held_out = names_of(split_corpus(make_documents(100)).valid);
  for (int i = 0; i < 100; ++i) {  // each once more, under a later name
    const std::string name = fmt::format("q{}", i);
    documents.push_back({"/copy/" + name, name, documents[i].text()});
  }
  const Corpus corpus = split_corpus(std::move(documents));
  expect_partition(corpus, 100);
  EXPECT_EQ(names_of(corpus.valid), held_out);

  auto same = make_documents(3);
  for (Document& d : same) d = {d.path, d.name, "line one\nline two\nline three\n"};
  const Corpus single = split_corpus(std::move(same));
  EXPECT_EQ(single.train[0].text() + single.valid[0].text(), "line one\nline two\nline three\n");
}

TEST(Split, ASingleFileIsCutAtALine) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "line " + std::to_string(i) + "\n";
  const Corpus corpus = split_corpus({{"/books/emma.txt", "emma.txt", text}});
  ASSERT_EQ(corpus.train.size(), 1u);
  ASSERT_EQ(corpus.valid.size(), 1u);
  EXPECT_EQ(corpus.train[0].text() + corpus.valid[0].text(), text);
  EXPECT_EQ(corpus.train[0].text().back(), '\n');
  EXPECT_NEAR(static_cast<double>(corpus.valid_bytes) / static_cast<double>(text.size()), 0.1, 0.002);
  EXPECT_EQ(corpus.split_rule, "The last tenth of emma.txt is held out for validation.");
}

TEST(Split, ASingleFileIsCutSomewhereWhateverItHolds) {
  const std::string accents = [] {
    std::string text;
    for (int i = 0; i < 333; ++i) text += "\xe4\xbd\xa0";
    return text;
  }();
  for (const std::string& text :
       {std::string("ab"), std::string("\n\n"), std::string("a\n"), std::string("one line of text"),
        std::string("a\n" + std::string(1000, 'b')), std::string(std::string(1000, 'b') + "\n"), accents}) {
    const Corpus corpus = split_corpus({{"-", "-", text}});
    EXPECT_EQ(corpus.train[0].text() + corpus.valid[0].text(), text);
    EXPECT_GT(corpus.train_bytes, 0);
    EXPECT_GT(corpus.valid_bytes, 0);
    if (text.size() < 16) continue;
    EXPECT_LE(corpus.valid_bytes * 8, corpus.train_bytes + corpus.valid_bytes) << text;
  }
  EXPECT_NE(utf8_sequence_length(split_corpus({{"-", "-", accents}}).valid[0].text(), 0), 0u);
  expect_error([] { split_corpus({{"/tiny", "tiny", "x"}}); }, "tiny is too short to hold out");
  expect_error([] { split_corpus({}); }, "no text");
}

TEST(SplitByName, WhatIsHeldOutIsNeverTrainedOn) {
  const TemporaryFolder folder;
  folder.write("all/one", "first");
  folder.write("all/two", "second");
  folder.write("all/valid/three", "third");
  folder.write("all/copy", "third");
  fs::create_symlink(folder / "all/valid/three", folder / "all/alias");
  const Corpus corpus = read_corpus({(folder / "all").string()}, {(folder / "all").string() + "/../all/valid"});
  EXPECT_EQ(names_of(corpus.train), (std::set<std::string>{"one", "two"}));
  EXPECT_EQ(names_of(corpus.valid), std::set<std::string>{"three"});
  EXPECT_EQ(corpus.train_bytes, 11);
  EXPECT_EQ(corpus.valid_bytes, 5);
  EXPECT_EQ(corpus.split_rule,
            "The held-out text was given: 1 file. 2 files of the training text are in it and not trained on.");
  expect_error([&] { read_corpus({(folder / "all/copy").string()}, {(folder / "all/valid").string()}); },
               "nothing is left to train on");
}

TEST(SplitByName, AHeldOutFileThatGrewBetweenTheReadsIsStillHeldOut) {
  const TemporaryFolder folder;
  const std::string log = folder.write("log", "first line\nsecond line\n"), alias = (folder / "alias").string();
  fs::create_symlink(log, alias);
  const Corpus corpus = split_corpus({{alias, "alias", "first line\n"}, {"/other", "other", "text"}},
                                     {{log, "log", "first line\nsecond line\n"}});
  EXPECT_EQ(names_of(corpus.train), std::set<std::string>{"other"});
}

TEST(ReadCorpus, StandardInputServesOneSide) {
  const TemporaryFolder folder;
  const std::string file = folder.write("file", "held out");
  std::istringstream input("trained on");
  const Corpus corpus = read_corpus({"-"}, {file}, input);
  EXPECT_EQ(corpus.train[0].text(), "trained on");
  EXPECT_EQ(corpus.valid[0].text(), "held out");
  expect_error<UsageError>([] { read_corpus({"-"}, {"-"}); }, "cannot be both");
}

TEST(DefaultCorpus, TakesTheNewestHeadersItFinds) {
  const TemporaryFolder root;
  root.write("usr/lib/llvm-9/include/c++/v1/vector", "9");
  root.write("usr/lib/llvm-14/include/c++/v1/vector", "14");
  EXPECT_EQ(default_corpus(root.path()), std::vector<std::string>{(root / "usr/lib/llvm-14/include/c++/v1").string()});
  root.write("usr/include/c++/9/vector", "9");
  root.write("usr/include/c++/12/vector", "12");
  root.write("usr/include/c++/13/no_vector_here", "13");
  EXPECT_EQ(default_corpus(root.path()), std::vector<std::string>{(root / "usr/include/c++/12").string()});
}

TEST(DefaultCorpus, SaysWhatToNameWhereThereAreNoHeaders) {
  EXPECT_FALSE(default_corpus().empty());
  const TemporaryFolder root;
  expect_error<UsageError>([&] { default_corpus(root.path()); }, "name files, folders or -");
}

TEST(DefaultCorpus, ThisMachinesSplitsWell) {
  const Corpus corpus = read_corpus({});
  EXPECT_GT(corpus.train_bytes, 100'000);
  EXPECT_GT(corpus.valid_bytes * 50, corpus.train_bytes);
}

TEST(SharedData, NovelsWithNamedValidation) {
  const fs::path novels = test::shared_data() / "novels";
  if (!fs::is_directory(novels)) GTEST_SKIP() << "no novels at " << novels << " (set ALIBI_SHARED_DATA)";
  const Corpus corpus = read_corpus({novels.string()}, {(novels / "valid").string()});
  EXPECT_EQ(names_of(corpus.valid), (std::set<std::string>{"emma.txt", "our-mutual-friend.txt"}));
  EXPECT_EQ(corpus.train.size(), 9u);
  for (const std::string& name : names_of(corpus.train)) EXPECT_TRUE(name.starts_with("train/")) << name;
}

}  // namespace
}  // namespace alibi::text
