// Repositories of the Hugging Face hub and their files in the local cache.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "alibi/hub.h"

namespace alibi::formats {

struct HubName {
  std::string given = {};         ///< as the user wrote it
  std::string repository = {};    ///< "org/name"; "name" for some old models
  std::string file = {};          ///< path in the repository; empty: all files
  std::string revision = "main";  ///< branch, tag or commit
};

/// See find_model(). Nothing for a path. Throws UsageError if `name` and `revision` both give a revision.
std::optional<HubName> hub_name(const std::string& name, const std::string& revision = "");

/// The snapshot folder, or the file in it. Throws Error with the command that downloads the model.
std::filesystem::path cached_model(const HubName& name);

/// The words of the command that downloads the model.
std::vector<std::string> download_command(const HubName& name);

/// "org/name" for a snapshot folder in the cache; else "".
std::string repository_of(const std::filesystem::path& snapshot);

}  // namespace alibi::formats
