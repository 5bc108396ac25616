// Options that limit which keys a context keeps, and the report of the evicted keys.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "alibi/context.h"
#include "command.h"

namespace alibi::cli {

/// --cache-type, --memory, --tolerance and --exact.
void add_context_limits(Command& command, ContextOptions& options);
/// The type of keys and values in a cache.
void add_cache_type(Command& command, std::optional<DType>& type);
/// Checks the options. Error messages begin with `operation`.
void check_context_limits(const std::string& operation, const ContextOptions& options);

/// "5,120 keys were evicted; ...", or "" if none were evicted.
std::string describe_evicted(const EvictionCertificate& certificate);
/// The limits and the certificate, or null if no limit was set.
nlohmann::ordered_json evicted_json(const ContextOptions& options, const EvictionCertificate& certificate);

}  // namespace alibi::cli
