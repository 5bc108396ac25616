#include "text/compressed.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <sstream>

#include "core/check.h"
#include "temporary_folder.h"
#include "testing.h"
#include "text/documents.h"

namespace alibi::text {
namespace {

using test::TemporaryFolder;

std::string gzipped(const std::string& text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string with_zstandard(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string long_text() {
  std::string text;
  for (int i = 0; text.size() < 900'000; ++i) text += "line " + std::to_string(i * 7919 % 100'003) + "\n";
  return text;
}

const std::vector<std::pair<const char*, std::string (*)(const std::string&)>> kPackers = {{".gz", gzipped},
                                                                                           {".zst", with_zstandard}};

TEST(Packed, GivesTheBytesOfEveryMember) {
  const std::string text = long_text();
  for (const auto& [ending, pack] : kPackers) {
    SCOPED_TRACE(ending);
    const std::string packed = pack(text);
    ASSERT_TRUE(is_compressed(packed));
    EXPECT_TRUE(unpack(packed, "t") == text);
    EXPECT_EQ(unpack(pack("one\n") + pack("two\n"), "t"), "one\ntwo\n");
    EXPECT_EQ(unpack(pack(""), "t"), "");
  }
  EXPECT_FALSE(is_compressed("plain text"));
  EXPECT_FALSE(is_compressed(""));
}

TEST(Packed, EveryCutAndEveryChangedByteIsAnErrorOrTheText) {
  const std::string text = "some words that are here twice, some words that are here twice\n";
  for (const auto& [ending, pack] : kPackers) {
    const std::string packed = pack(text);
    for (size_t size = 4; size < packed.size(); ++size) {
      EXPECT_THROW(unpack(packed.substr(0, size), "t"), Error) << ending << " cut to " << size;
    }
    for (size_t at = 4; at < packed.size(); ++at) {
      std::string changed = packed;
      changed[at] = static_cast<char>(changed[at] ^ 0x55);
      try {
        unpack(changed, "t");  // no crash; gzip's checksum makes most of them errors
      } catch (const Error&) {
      }
    }
  }
}

TEST(Packed, WhatIsNoTextEndsAtOnce) {
  const std::string zeros(size_t{256} << 20, '\0');
  for (const auto& [ending, pack] : kPackers) EXPECT_LT(unpack(pack(zeros), "t").size(), size_t{1} << 20) << ending;
}

TEST(Packed, DocumentsComeUnpackedUnderTheirInnerNames) {
  const TemporaryFolder folder;
  folder.write("texts/a.txt.gz", gzipped("first text\n"));
  folder.write("texts/b.zst", with_zstandard("second text\n"));
  folder.write("texts/c.bin.gz", gzipped(std::string(100, '\0')));
  folder.write("texts/d.txt", "third text\n");
  const std::vector<Document> documents = read_documents({(folder / "texts").string()});
  ASSERT_EQ(documents.size(), 3u);
  EXPECT_EQ(documents[0].name, "a.txt");
  EXPECT_EQ(documents[0].text(), "first text\n");
  EXPECT_EQ(documents[1].name, "b");
  EXPECT_EQ(documents[1].text(), "second text\n");
  EXPECT_EQ(documents[2].text(), "third text\n");
  EXPECT_THROW(read_documents({(folder / "texts/c.bin.gz").string()}), Error);
  EXPECT_THROW(read_documents({folder.write("texts/cut.gz", gzipped("first text\n").substr(0, 15))}), Error);
  EXPECT_THROW(read_documents({(folder / "texts").string()}), Error);  // not left out in silence
}

TEST(Records, AreDocumentsOfTheirOwn) {
  const TemporaryFolder folder;
  const std::string lines =
      "{\"id\": 1, \"text\": \"caf\\u00e9\\nopen\"}\n\n{\"text\": \"\"}\r\n{\"text\": \"last\", \"body\": \"other\"}";
  for (const std::string& path : {folder.write("r.jsonl", lines), folder.write("r.ndjson.gz", gzipped(lines))}) {
    const std::vector<Document> documents = read_documents({path});
    ASSERT_EQ(documents.size(), 2u) << path;
    EXPECT_EQ(documents[0].text(), "caf\xc3\xa9\nopen");
    EXPECT_TRUE(documents[0].name.ends_with("json:1") || documents[0].name == "r.jsonl:1") << documents[0].name;
    EXPECT_EQ(documents[1].text(), "last");
    EXPECT_TRUE(documents[1].name.ends_with(":4"));
  }
}

TEST(Records, ErrorsNameTheLineAndTheFields) {
  const auto message = [](const std::string& lines, const std::string& field) -> std::string {
    try {
      read_records(lines, field, "r.jsonl");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  const std::string missing = message("{\"text\": \"a\"}\n{\"title\": \"b\", \"body\": \"c\"}\n", "text");
  EXPECT_NE(missing.find("line 2"), std::string::npos) << missing;
  EXPECT_NE(missing.find("body, title"), std::string::npos) << missing;
  EXPECT_NE(missing.find("--field"), std::string::npos) << missing;
  EXPECT_NE(message("{\"text\": 7}", "text").find("number"), std::string::npos);
  EXPECT_NE(message("[1]", "text").find("line 1"), std::string::npos);
  EXPECT_NE(message("{\"text\": \"a\"", "text").find("line 1"), std::string::npos);
  EXPECT_EQ(message("{\"text\": \"a\"}", "text"), "");
  EXPECT_NE(message("{\"text\": 1.5}", "text").find("is number"), std::string::npos);
  EXPECT_EQ(message("\xef\xbb\xbf{\"text\": \"a\"}\r\n\r\n", "text"), "");
}

TEST(Records, TheFieldIsTheCallers) {
  const TemporaryFolder folder;
  const std::string path = folder.write("r.jsonl", "{\"body\": \"words\"}\n");
  EXPECT_EQ(read_documents({path}, std::cin, "body").front().text(), "words");
  EXPECT_THROW(read_documents({path}), Error);
}

}  // namespace
}  // namespace alibi::text
