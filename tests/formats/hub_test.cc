#include "formats/hub.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "alibi/hub.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::formats {
namespace {

const std::string kCommit = "0123456789abcdef0123456789abcdef01234567";
const std::string kOther = "fedcba9876543210fedcba9876543210fedcba98";

/// Sets the variables that decide where the cache is, and restores them.
class HubEnvironment {
 public:
  explicit HubEnvironment(const std::map<std::string, std::string>& set) {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"}) {
      const char* const before = std::getenv(name);
      before_[name] = before == nullptr ? std::nullopt : std::optional<std::string>(before);
      ::unsetenv(name);
    }
    for (const auto& [name, value] : set) ::setenv(name.c_str(), value.c_str(), 1);
  }
  ~HubEnvironment() {
    for (const auto& [name, value] : before_) {
      value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
    }
  }
  HubEnvironment(const HubEnvironment&) = delete;
  HubEnvironment& operator=(const HubEnvironment&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

/// The cache as huggingface_hub leaves it: main and v1 have different commits, and files are links to blobs.
class HubCache : public testing::Test {
 protected:
  void SetUp() override {
    folder.write("hub/models--org--name/refs/main", kCommit);
    folder.write("hub/models--org--name/refs/v1", kOther);
    folder.write("hub/models--org--name/refs/refs/pr/1", kOther);
    folder.write("hub/models--org--name/blobs/abc", "{}");
    for (const std::string& commit : {kCommit, kOther}) {
      std::filesystem::create_directories(snapshots() / commit / "sub");
      std::filesystem::create_symlink("../../blobs/abc", snapshots() / commit / "config.json");
      std::filesystem::create_symlink("../../../blobs/abc", snapshots() / commit / "sub" / "model.gguf");
    }
    folder.write("hub/models--gpt2/refs/main", kCommit + "\n");
    folder.write("hub/models--gpt2/snapshots/" + kCommit + "/config.json", "{}");
    folder.write("hub/models--org--gone/refs/main", kCommit);
  }
  std::filesystem::path snapshots() const { return folder / "hub/models--org--name/snapshots"; }

  test::TemporaryFolder folder;
  HubEnvironment environment{{{"HF_HOME", folder.path().string()}}};
};

std::string command(const std::string& name, const std::string& revision = "") {
  std::string words;
  for (const std::string& word : download_command(*hub_name(name, revision))) words += word + ' ';
  return words;
}

TEST_F(HubCache, NamesGiveTheSnapshotsOfTheirRevisions) {
  EXPECT_EQ(find_model("org/name"), snapshots() / kCommit);
  EXPECT_EQ(find_model("hf:org/name"), snapshots() / kCommit);
  EXPECT_EQ(find_model("hf:org/name@v1"), snapshots() / kOther);
  EXPECT_EQ(find_model("hf:org/name@refs/pr/1"), snapshots() / kOther);
  EXPECT_EQ(find_model("hf:org/name@" + kOther), snapshots() / kOther);
  EXPECT_EQ(cached_model(*hub_name("org/name", "v1")), snapshots() / kOther);
  EXPECT_EQ(find_model("hf:org/name/sub/model.gguf@v1"), snapshots() / kOther / "sub/model.gguf");
  EXPECT_EQ(find_model("hf:gpt2").parent_path().parent_path().filename(), "models--gpt2");
  EXPECT_EQ(repository_of(find_model("org/name")), "org/name");
  EXPECT_EQ(repository_of(find_model("hf:gpt2")), "gpt2");
  EXPECT_EQ(repository_of(snapshots() / kCommit / "config.json"), "");
}

TEST_F(HubCache, PathsStayAsTheyAre) {
  for (const char* path : {"", "-", "gpt2", "./org/name", "/org/name", "org/name/", "org/name/config.json", "../name",
                           "org/.name", "a--b/c", "org/name.git", "~/name"}) {
    EXPECT_EQ(find_model(path), path);
  }
  folder.write("org/name/config.json", "{}");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  EXPECT_EQ(find_model("org/name"), "org/name");
  EXPECT_EQ(find_model("hf:org/name"), snapshots() / kCommit);
  std::filesystem::current_path(before);
}

TEST_F(HubCache, WhatIsMissingIsNamedWithTheCommandThatDownloadsIt) {
  test::expect_error([] { find_model("org/else"); }, "no such folder or file");
  test::expect_error([] { find_model("org/else"); }, "run: hf download org/else --exclude '*.bin'");
  test::expect_error([] { find_model("hf:org/gone"); }, "run: hf download org/gone");
  test::expect_error([] { find_model("hf:org/name@v2"); }, "run: hf download org/name --revision v2");
  test::expect_error([] { find_model("hf:org/name/a.gguf"); }, "run: hf download org/name a.gguf");
  test::expect_error([] { find_model("hf:org/else"); }, (folder / "hub").string());
  EXPECT_EQ(command("org/name"), "hf download org/name --exclude *.bin ");
  EXPECT_EQ(command("hf:org/name/a.gguf", "v1"), "hf download org/name a.gguf --revision v1 ");
}

TEST_F(HubCache, NamesThatAreWrongAreRefused) {
  for (const char* name : {"hf:", "hf:/name", "hf:org/", "hf:org/na me", "hf:-org/name", "hf:org/..", "hf:org/name/",
                           "hf:org/name/../../x", "hf:org/name//x", "hf:org/name/-x", "hf:org/name@", "hf:org/name@-r",
                           "hf:org/name@../main", "hf:org/name@a;b", "hf:org--x/name"}) {
    EXPECT_THROW(find_model(name), UsageError) << name;
  }
  EXPECT_THROW(hub_name("hf:org/name@v1", "v2"), UsageError);
  folder.write("hub/models--org--name/refs/bad", "../../../etc");
  test::expect_error([] { find_model("hf:org/name@bad"); }, "run: hf download");
}

TEST_F(HubCache, VariablesDecideWhereTheCacheIs) {
  const std::string root = folder.path().string();
  const auto found = [&](const std::map<std::string, std::string>& set) {
    const HubEnvironment changed(set);
    return find_model("hf:org/name") == snapshots() / kCommit;
  };
  EXPECT_TRUE(found({{"HF_HUB_CACHE", root + "/hub"}, {"HF_HOME", "/nowhere"}}));
  EXPECT_TRUE(found({{"HUGGINGFACE_HUB_CACHE", root + "/hub"}}));
  EXPECT_TRUE(found({{"HF_HUB_CACHE", root + "/hub"}, {"HUGGINGFACE_HUB_CACHE", "/nowhere"}}));
  EXPECT_TRUE(found({{"HF_HOME", root}, {"XDG_CACHE_HOME", "/nowhere"}}));
  EXPECT_TRUE(found({{"HF_HOME", "~"}, {"HOME", root}}));
  EXPECT_TRUE(found({{"HF_HOME", "$HOME"}, {"HOME", root}}));
  EXPECT_TRUE(found({{"HF_HUB_CACHE", "${HOME}/hub"}, {"HOME", root}}));
  const std::filesystem::path usual = folder / "home/.cache/huggingface";
  std::filesystem::create_directories(usual);
  std::filesystem::create_symlink(folder / "hub", usual / "hub");
  const auto path = [](const std::map<std::string, std::string>& set) {
    const HubEnvironment changed(set);
    return find_model("hf:org/name").string();
  };
  const std::string below = "/huggingface/hub/models--org--name/snapshots/" + kCommit;
  EXPECT_EQ(path({{"HOME", root + "/home"}}), root + "/home/.cache" + below);
  EXPECT_EQ(path({{"XDG_CACHE_HOME", root + "/home/.cache"}, {"HOME", "/nowhere"}}), root + "/home/.cache" + below);
}

}  // namespace
}  // namespace alibi::formats
