#include "text/data_folder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/files.h"
#include "temporary_folder.h"
#include "testing.h"
#include "text/hash.h"
#include "text/pieces.h"
#include "text/stream.h"
#include "text/token_file.h"

namespace alibi::text {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TemporaryFolder;
using Ids = std::vector<int32_t>;

Ids ids_of(const TokenStream& stream) { return {stream.tokens.begin(), stream.tokens.end()}; }

std::string lines(int first, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("line {} has the words of line {}\n", first + i % 97, i % 89 * 7);
  return text;
}

/// Two parts of several files, with one that takes several pieces.
Corpus corpus_in(const TemporaryFolder& folder) {
  folder.write("text/a", lines(0, 9000));
  folder.write("text/b", lines(5, 10) + "without an end");
  std::string one_line = lines(7, 8000);
  std::replace(one_line.begin(), one_line.end(), '\n', ' ');
  folder.write("text/c", one_line);
  const std::string valid = folder.write("valid", lines(100, 50));
  return read_corpus({(folder / "text").string()}, {valid});
}

TEST(TokenFile, GivesBackWhatWasWritten) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x.tokens";
  const TokenFileHeader written = write_token_file(path, ByteTokenizer(), [](const AppendTokens& append) {
    append(Ids{1, 2, 3}, 30);
    append(Ids{}, 0);
    append(Ids{256}, 4);
  });
  const TokenFile file = read_token_file(path);
  EXPECT_EQ(ids_of(file.stream), (Ids{1, 2, 3, 256}));
  EXPECT_EQ(file.header.tokens, 4);
  EXPECT_EQ(file.header.bytes, 34);
  EXPECT_EQ(file.header.vocab_size, 257);
  EXPECT_EQ(file.header.end_of_text, 256);
  EXPECT_EQ(file.header.fingerprint, ByteTokenizer().fingerprint());
  EXPECT_EQ(file.header.checksum, written.checksum);
  EXPECT_NO_THROW(check_tokens(file, path));
}

TEST(TokenFile, TheLayoutIsTheDocumentedOne) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x.tokens";
  write_token_file(path, ByteTokenizer(), [](const AppendTokens& append) { append(Ids{7, 256}, 2); });
  const std::string bytes = core::read_file(path);
  ASSERT_EQ(bytes.size(), 72u);
  const auto at = [&](size_t offset, auto value) {
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  };
  EXPECT_EQ(bytes.substr(0, 8), "ALIBITOK");
  EXPECT_EQ(at(8, uint32_t{}), 1u);
  EXPECT_EQ(at(12, uint32_t{}), 4u);
  EXPECT_EQ(at(16, int64_t{}), 2);
  EXPECT_EQ(at(24, int64_t{}), 2);
  uint64_t hash = 0xcbf29ce484222325u;
  for (const uint64_t id : {7u, 256u}) hash = (hash ^ id) * 0x100000001b3u;
  EXPECT_EQ(at(40, uint64_t{}), hash);
  EXPECT_EQ(at(48, int32_t{}), 257);
  EXPECT_EQ(at(52, int32_t{}), 256);
  EXPECT_EQ(at(64, int32_t{}), 7);
  EXPECT_EQ(at(68, int32_t{}), 256);
}

TEST(TokenFile, DamageIsFound) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x.tokens";
  write_token_file(path, ByteTokenizer(), [](const AppendTokens& append) { append(Ids(100, 65), 100); });
  const std::string good = core::read_file(path);
  for (size_t size = 0; size < good.size(); ++size) {
    folder.write("x.tokens", std::string_view(good).substr(0, size));
    expect_error([&] { read_token_file(path); }, path.string());
  }
  core::write_file(path, good + "1234");
  expect_error([&] { read_token_file(path); }, "the header states 100 ids");
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    folder.write("x.tokens", bytes);
    expect_error([&] { check_tokens(read_token_file(path), path); }, path.string());
  }
  std::string bytes = good;
  std::memcpy(bytes.data() + 64, "\x01\x01\0\0", 4);  // 257, which embeddings do not have
  core::write_file(path, bytes);
  expect_error([&] { check_tokens(read_token_file(path), path); }, "token 0 is 257, expected 0 to 256");
  expect_error([&] { read_token_file(folder / "missing"); }, "missing");

  bytes = good;  // as another writer might mean it, whole
  bytes[12] = 2;
  const uint64_t checksum = fnv1a(std::string_view(bytes).substr(0, 56));
  std::memcpy(bytes.data() + 56, &checksum, sizeof checksum);
  core::write_file(path, bytes);
  expect_error([&] { read_token_file(path); }, "ids of 2 bytes, expected 4");
}

TEST(TokenFile, AWholeHeaderThatAsksForSomethingElseIsRefused) {
  const TemporaryFolder folder;
  const fs::path path = folder / "x.tokens";
  write_token_file(path, ByteTokenizer(), [](const AppendTokens& append) { append(Ids(100, 65), 100); });
  const std::string good = core::read_file(path);
  const auto with = [&](size_t at, int32_t value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    const uint64_t checksum = fnv1a(std::string_view(bytes).substr(0, 56));
    std::memcpy(bytes.data() + 56, &checksum, sizeof checksum);
    core::write_file(path, bytes);
    return [&] { read_token_file(path); };
  };
  with(8, 1)();  // as it was: the checksum is made rightly here
  expect_error(with(8, 2), "version 2, expected 1");
  expect_error(with(12, 2), "ids of 2 bytes, expected 4");
  expect_error(with(48, 0), "a vocabulary of 0");
  expect_error(with(52, 257), "with the end of text 257");
  expect_error(with(52, -1), "with the end of text -1");
}

class DataFolder : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, DataFolder, testing::Values("byte", "bpe", "unigram", "words"),
                         [](const auto& parameter) { return parameter.param; });

TEST_P(DataFolder, HoldsWhatEncodingInMemoryGives) {
  const TemporaryFolder folder;
  const Corpus corpus = corpus_in(folder);
  TokenizerChoice choice;
  choice.kind = GetParam();
  if (choice.kind == "bpe" || choice.kind == "unigram") choice.vocab_size = 350;
  std::string last;
  double fraction = 0;
  const TextProgress progress = [&](std::string_view work, double done) {
    EXPECT_TRUE(last != work || done >= fraction) << work;
    EXPECT_LE(done, 1) << work;
    last = work;
    fraction = done;
  };
  const auto tokenizer = make_tokenizer(choice, corpus.train, progress);
  write_data_folder(folder / "data", corpus, *tokenizer, progress);
  EXPECT_EQ(last, "tokenize");
  EXPECT_EQ(fraction, 1);
  const TrainingData data = check_data_folder(folder / "data");
  EXPECT_EQ(data.tokenizer->kind(), GetParam());
  EXPECT_EQ(data.tokenizer->fingerprint(), tokenizer->fingerprint());
  EXPECT_EQ(data.train_bytes, corpus.train_bytes);
  EXPECT_EQ(data.valid_bytes, corpus.valid_bytes);
  EXPECT_EQ(data.split_rule, corpus.split_rule);
  const TrainingData direct = training_data({(folder / "text").string()}, {(folder / "valid").string()}, choice);
  EXPECT_EQ(direct.tokenizer->fingerprint(), tokenizer->fingerprint());
  EXPECT_EQ(ids_of(direct.train), ids_of(data.train));
  EXPECT_EQ(ids_of(direct.valid), ids_of(data.valid));
  Ids expected;  // document by document, each as a whole
  for (const Document& document : corpus.train) {
    const Ids ids = tokenizer->encode(document.text());
    expected.insert(expected.end(), ids.begin(), ids.end());
    const bool ended = tokenizer->end_of_text_ends_lines() && document.text().ends_with('\n');
    if (!ended) expected.push_back(tokenizer->end_of_text());
  }
  EXPECT_EQ(ids_of(data.train), expected);
}

TEST_P(DataFolder, IsTheSameAtAnyNumberOfThreads) {
  const test::RuntimeGuard guard;
  const TemporaryFolder folder;
  const Corpus corpus = corpus_in(folder);
  TokenizerChoice choice;
  choice.kind = GetParam();
  if (choice.kind == "bpe" || choice.kind == "unigram") choice.vocab_size = 350;
  std::vector<std::string> files;
  for (const int count : {1, 3}) {
    set_threads(count);
    const fs::path out = folder / std::to_string(count);
    write_data_folder(out, corpus, *make_tokenizer(choice, corpus.train));
    std::string all;
    std::set<fs::path> names(fs::directory_iterator(out), fs::directory_iterator{});
    for (const fs::path& path : names) all += path.filename().string() + "\n" + core::read_file(path);
    files.push_back(all);
  }
  EXPECT_TRUE(files[0] == files[1]);
}

TEST(DataFolders, MissingAndForeignFilesAreNamed) {
  const TemporaryFolder folder;
  const fs::path data = folder / "data";
  const Corpus corpus = corpus_in(folder);
  const auto read = [&] { read_data_folder(data); };
  EXPECT_FALSE(is_data_folder(data));
  for (const char* name : {"data.json", "train.tokens", "valid.tokens", "tokenizer.json"}) {
    write_data_folder(data, corpus, ByteTokenizer());
    EXPECT_NO_THROW(read());
    EXPECT_TRUE(is_data_folder(data));
    fs::remove(data / name);
    expect_error(read, name);
  }
  write_data_folder(data, corpus, ByteTokenizer());
  fs::copy_file(data / "train.tokens", data / "valid.tokens", fs::copy_options::overwrite_existing);
  expect_error(read, "it is not the file that data.json was written with");
  for (const char* key : {"tokens", "checksum"}) {
    write_data_folder(data, corpus, ByteTokenizer());
    std::string json = core::read_file(data / "data.json");
    json[json.find_first_of("0123456789", json.find(key) + std::strlen(key) + 2)] ^= 1;
    core::write_file(data / "data.json", json);
    expect_error(read, "it is not the file that data.json was written with");
  }
  write_data_folder(data, corpus, ByteTokenizer());
  make_tokenizer({.kind = "words"}, corpus.train)->save(data);
  expect_error(read, "another tokenizer");
  for (const char* text : {"", "{", "[]", "{\"version\": 2}", "{\"version\": 1}", "{\"version\": 1, \"train\": 3}"}) {
    write_data_folder(data, corpus, ByteTokenizer());
    core::write_file(data / "data.json", text);
    expect_error(read, "data.json");
  }
}

/// Everything in a folder, by name.
std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = entry.is_regular_file() ? core::read_file(entry.path()) : "";
  }
  return files;
}

TEST(DataFolders, AnOldOneStaysWholeUntilTheNewOneIs) {
  const TemporaryFolder folder;
  const fs::path data = folder / "data", fresh = folder / "fresh";
  const Corpus corpus = corpus_in(folder);
  write_data_folder(data, corpus, ByteTokenizer());
  const auto old = files_of(data);
  const auto words = make_tokenizer({.kind = "words"}, corpus.train);
  const auto fails = [&](const char* mentions) {
    for (const fs::path& target : {data, fresh}) {
      expect_error([&] { write_data_folder(target, corpus, *words); }, mentions);
    }
    EXPECT_TRUE(files_of(data) == old);
    EXPECT_TRUE(files_of(fresh).empty());
  };
  {
    const test::FileSizeLimit limit(100'000);  // train.tokens is larger
    fails("File too large");
  }
  fs::rename(folder / "valid", folder / "away");  // the new one fails at its second part
  fails("valid");
  fs::rename(folder / "away", folder / "valid");
  {
    const core::FolderLock other(data), another(fresh);
    fails("another process");
  }
  fs::create_directory(data / ".saving.4711.part");  // of a process that was killed
  write_data_folder(data, corpus, *words);
  const auto files = files_of(data);
  EXPECT_FALSE(files.contains(".saving.4711.part"));
  write_data_folder(fresh, corpus, *words);
  EXPECT_TRUE(files == files_of(fresh)) << "nothing of the old one is left";
  write_data_folder(data, corpus, ByteTokenizer());
  EXPECT_TRUE(files_of(data) == old) << "nor of the other tokenizer, which would be read instead";
}

TEST(DataFolders, AMixtureOfTwoIsAnErrorOrOneOfThem) {
  const TemporaryFolder folder;
  const Corpus corpus = read_corpus({folder.write("some", lines(0, 60))}, {folder.write("valid", lines(10, 9))});
  const Corpus other = read_corpus({folder.write("other", lines(50, 40))}, {folder.write("held", lines(60, 20))});
  const auto words = make_tokenizer({.kind = "words"}, corpus.train);
  const fs::path mixed = folder / "mixed";
  struct Pair {
    const Corpus& corpus;
    std::shared_ptr<const Tokenizer> tokenizer;
  };
  const Pair old{corpus, std::make_shared<ByteTokenizer>()};
  int errors = 0, whole = 0;
  for (const Pair& now : {Pair{other, old.tokenizer}, Pair{other, words}}) {
    fs::remove_all(folder / "old");
    fs::remove_all(folder / "new");
    write_data_folder(folder / "old", old.corpus, *old.tokenizer);
    write_data_folder(folder / "new", now.corpus, *now.tokenizer);
    const TrainingData before = read_data_folder(folder / "old"), after = read_data_folder(folder / "new");
    const auto is = [](const TrainingData& a, const TrainingData& b) {
      return ids_of(a.train) == ids_of(b.train) && ids_of(a.valid) == ids_of(b.valid) &&
             a.tokenizer->fingerprint() == b.tokenizer->fingerprint();
    };
    const auto files = files_of(folder / "new");
    for (unsigned chosen = 0; chosen < 1u << files.size(); ++chosen) {
      fs::remove_all(mixed);
      fs::copy(folder / "old", mixed);
      unsigned bit = 0;
      for (const auto& [name, content] : files) {
        if ((chosen >> bit++ & 1u) != 0) folder.write("mixed/" + name, content);
      }
      try {
        const TrainingData read = read_data_folder(mixed);
        EXPECT_TRUE(is(read, before) || is(read, after)) << chosen;
        ++whole;
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("mixed"), std::string::npos) << error.what();
        ++errors;
      }
    }
  }
  EXPECT_GT(errors, 20);
  EXPECT_GT(whole, 6);
}

TEST(DataFolders, WhatIsInTheWayIsNamed) {
  const TemporaryFolder folder;
  const Corpus corpus = corpus_in(folder);
  for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json", "train.json"}) {
    const fs::path model = folder / name / "model";
    folder.write(model / name, "{}");
    expect_error<UsageError>([&] { prepare_data_folder(model, true); }, name);
    expect_error<UsageError>([&] { write_data_folder(model, corpus, ByteTokenizer()); }, "is a model folder");
    EXPECT_EQ(files_of(model).size(), 1u);
  }
  const fs::path data = folder / "data";
  for (const char* name : {"train.tokens", "data.json", "tokenizer.json"}) {
    fs::create_directories(data);
    fs::create_symlink("elsewhere", data / name);
    expect_error([&] { write_data_folder(data, corpus, ByteTokenizer()); }, name);
    EXPECT_EQ(files_of(data).size(), 1u);
    fs::remove(data / name);
  }
}

TEST(TrainingData, DamagedTokensAreNamedBeforeAnythingIsTrained) {
  const TemporaryFolder folder;
  const Corpus corpus = corpus_in(folder);
  write_data_folder(folder / "data", corpus, ByteTokenizer());
  const std::vector<std::string> data = {(folder / "data").string()};
  const auto damage = [&](const char* name, size_t token, int32_t id) {
    std::string content = core::read_file(folder / "data" / name);
    std::memcpy(content.data() + 64 + 4 * token, &id, sizeof id);
    folder.write(fs::path("data") / name, content);
  };
  const auto train = [&] { training_data(data, {}); };
  const auto score = [&] { text_to_score(ByteTokenizer(), data); };
  EXPECT_NO_THROW(train());
  damage("train.tokens", 777, 0x10000061);
  expect_error(train, data[0] + "/train.tokens: token 777 is 268435553, expected 0 to 256: the file is damaged");
  EXPECT_NO_THROW(score());  // which does not read it
  damage("train.tokens", 777, -1);
  expect_error(train, data[0] + "/train.tokens: token 777 is -1, expected 0 to 256");
  damage("train.tokens", 777, 1);  // a token, but another one
  expect_error(train, data[0] + "/train.tokens: the checksum is");
  damage("valid.tokens", 5, 257);
  expect_error(score, data[0] + "/valid.tokens: token 5 is 257, expected 0 to 256");
}

TEST(TrainingData, WhatDoesNotGoTogetherIsAUsageError) {
  const TemporaryFolder folder;
  const std::string data = (folder / "data").string(), text = folder.write("more", lines(0, 5));
  write_data_folder(data, corpus_in(folder), ByteTokenizer());
  expect_error<UsageError>([&] { training_data({data, text}, {}); }, "cannot be combined");
  expect_error<UsageError>([&] { training_data({data}, {text}); }, "leave out --valid");
  expect_error<UsageError>([&] { training_data({data}, {}, {.kind = "words"}); }, "its own tokenizer (byte");
  expect_error<UsageError>([&] { training_data({text}, {}, {.kind = "letters"}); },
                           "expected byte, bpe, unigram, words");
  expect_error<UsageError>([&] { training_data({text}, {}, {.vocab_size = 300}); }, "expected 257 for bytes");
  expect_error<UsageError>([&] { training_data({text}, {}, {.kind = "bpe", .min_count = 2}); }, "minimum word count");
  expect_error<UsageError>([&] { training_data({text}, {}, {.kind = "bpe", .like = data}); }, "choose one of them");
}

TEST(TrainingData, ATokenizerCanBeTakenFromAFolder) {
  const TemporaryFolder folder;
  const Corpus corpus = corpus_in(folder);
  const std::string data = (folder / "data").string();
  write_data_folder(data, corpus, *make_tokenizer({.kind = "words"}, corpus.train));
  const std::string text = folder.write("more", lines(3, 20));
  const TrainingData more = training_data({text}, {}, {.like = data});
  EXPECT_EQ(more.tokenizer->fingerprint(), read_data_folder(data).tokenizer->fingerprint());
  const ScoredText scored = text_to_score(*more.tokenizer, {data});
  EXPECT_EQ(ids_of(scored.stream), ids_of(read_data_folder(data).valid));
  EXPECT_EQ(scored.bytes, corpus.valid_bytes);
  EXPECT_EQ(text_to_score(*more.tokenizer, {text}).bytes, static_cast<int64_t>(fs::file_size(text)));
  expect_error([&] { text_to_score(ByteTokenizer(), {data}); }, "another tokenizer");
}

TEST(Document, AFileThatChangesInBetweenIsNoticed) {
  const TemporaryFolder folder;
  const std::string path = folder.write("text", lines(0, 10));
  const std::vector<Document> documents = read_documents({path});
  EXPECT_EQ(documents[0].part(5, 11).text(), lines(0, 10).substr(5, 6));
  folder.write("text", lines(0, 11));
  expect_error([&] { encode_stream(ByteTokenizer(), documents); }, "the file changed while it was in use");
}

}  // namespace
}  // namespace alibi::text
