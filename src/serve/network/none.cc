// A build without the server.
#include "core/check.h"
#include "serve/network/server.h"

namespace alibi::serve::network {

void run_server(Api::Models, const ServerOptions&, const std::function<void(const std::string& url)>&) {
  fail("[serve] this build has no server; build with ALIBI_SERVER=ON, which needs the headers of Boost.Beast");
}

}  // namespace alibi::serve::network
