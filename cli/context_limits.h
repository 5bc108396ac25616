// The options that bound what a context keeps of a text, and what is said of the keys that it evicted.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "alibi/context.h"
#include "command.h"

namespace alibi::cli {

/// --memory, --tolerance and --exact.
void add_context_limits(Command& command, ContextOptions& options);
/// For options that were given. `operation` begins the message.
void check_context_limits(const std::string& operation, const ContextOptions& options);

/// "5,120 keys were evicted, which ..."; empty if none was.
std::string describe_evicted(const EvictionCertificate& certificate);
/// The limits and the certificate; null where nothing could be evicted.
nlohmann::ordered_json evicted_json(const ContextOptions& options, const EvictionCertificate& certificate);

}  // namespace alibi::cli
