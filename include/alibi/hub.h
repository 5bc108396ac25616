// Models by their names on the Hugging Face hub, in the local cache of its Python library.
#pragma once

#include <filesystem>
#include <string>

#include "alibi/export.h"

namespace alibi {

/// The path of a model. `name` is a path, or the name of a repository of the hub: `org/name`, if there is no such path,
/// or `hf:org/name`, which may have a file and a revision: `hf:org/name/file.gguf@revision`. A path is returned
/// unchanged, whether it exists or not. For a repository, the snapshot folder or the file in the local cache is
/// returned; nothing is downloaded or written. Throws Error with the command that downloads the model if the cache does
/// not have it, and UsageError if what follows `hf:` is no name.
ALIBI_API std::filesystem::path find_model(const std::string& name);

}  // namespace alibi
