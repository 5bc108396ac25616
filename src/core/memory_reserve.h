// Memory for the moments after memory has run out.
#pragma once

namespace alibi::core {

/// Keeps a MiB. The first `new` that fails frees it and throws std::bad_alloc, so that destructors which allocate, such
/// as that of a JSON value, do not end the process while the exception passes them. Programs call this when they start
/// and after they have recovered. It replaces the new-handler of the process, so the library itself never calls it.
void keep_memory_reserve();

}  // namespace alibi::core
