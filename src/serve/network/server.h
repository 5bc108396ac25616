// The HTTP server: one thread for all connections.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "serve/api.h"

namespace alibi::serve::network {

constexpr int64_t header_bytes_limit = UINT32_MAX;  ///< the largest limit that the parser can have

struct ServerOptions {
  std::string host = "127.0.0.1";
  int64_t port = 8080;  ///< 0: a free one
  int64_t max_connections = 256;
  int64_t max_body_bytes = int64_t{4} << 20;
  int64_t max_header_bytes = 16 << 10;  ///< with the trailer of a chunked body; at most header_bytes_limit
  double header_seconds = 10;           ///< from the first byte of a request to the end of its header
  double body_seconds = 60;             ///< from there to the end of its body
  double idle_seconds = 60;             ///< without a request
  double write_seconds = 30;            ///< for the client to take a piece of the answer
  double request_seconds = 600;         ///< from the end of the body to the end of the answer
  double grace_seconds = 30;            ///< for running requests, after SIGTERM
  bool logs_requests = true;
  ApiOptions api = {};
};

/// Serves the models until SIGTERM or SIGINT; then finishes the requests that run. `listening` receives the address.
/// Throws Error if the address cannot be used.
void run_server(Api::Models models, const ServerOptions& options,
                const std::function<void(const std::string& url)>& listening);

}  // namespace alibi::serve::network
