#include "serve/network/server.h"

#include <fmt/format.h>

#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <utility>

#include "core/check.h"
#include "serve/network/connection.h"

namespace alibi::serve::network {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

class Server {
 public:
  Server(Api::Models models, const ServerOptions& options)
      : shared_{options}, acceptor_(shared_.io), retry_(shared_.io), grace_(shared_.io), signals_(shared_.io) {
    api_ = std::make_unique<Api>(std::move(models), options.api);
    shared_.api = api_.get();
    shared_.ended = [this] { stop_if_done(); };
    listen();
  }
  ~Server() { shared_.ended = nullptr; }

  std::string url() const {
    const tcp::endpoint at = acceptor_.local_endpoint();
    const std::string address = at.address().to_string();
    return at.address().is_v6() ? fmt::format("http://[{}]:{}", address, at.port())
                                : fmt::format("http://{}:{}", address, at.port());
  }

  void run() {
    std::signal(SIGPIPE, SIG_IGN);  // standard error may be closed
    signals_.add(SIGTERM);
    signals_.add(SIGINT);
    signals_.async_wait([this](const ErrorCode& error, int) {
      if (!error) stop();
    });
    accept();
    shared_.io.run();
    api_.reset();  // ends the threads that post to io
  }

 private:
  void listen() {
    const ServerOptions& options = shared_.options;
    ErrorCode error;
    tcp::resolver resolver(shared_.io);
    const auto found = resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
    check(!error && !found.empty(), "[serve] {} is no address of this machine: {}", options.host, error.message());
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    check(!error, "[serve] cannot listen on {}, port {}: {}", options.host, options.port, error.message());
  }

  void accept() {
    acceptor_.async_accept([this](const ErrorCode& error, tcp::socket socket) {
      if (shared_.stopping) return;
      if (error) {  // no file descriptor is free, for example
        retry_.expires_after(std::chrono::milliseconds(100));
        retry_.async_wait([this](const ErrorCode& cancelled) {
          if (!cancelled && !shared_.stopping) accept();
        });
        return;
      }
      const auto count = static_cast<int64_t>(shared_.all.size());
      const int64_t most = shared_.options.max_connections;
      if (count < 2 * most) {  // those beyond the limit get an error
        const auto connection = std::make_shared<Connection>(std::move(socket), shared_);
        count < most ? connection->start() : connection->refuse();
      }
      accept();
    });
  }

  /// Takes no further requests, and ends when those that run have been answered.
  void stop() {
    shared_.log({{"event", "stopping"}, {"connections", shared_.all.size()}});
    shared_.stopping = true;
    api_->close();
    ErrorCode ignored;
    acceptor_.close(ignored);
    retry_.cancel(ignored);
    signals_.clear(ignored);  // the next signal ends the process
    std::signal(SIGTERM, SIG_DFL);
    std::signal(SIGINT, SIG_DFL);
    grace_.expires_after(std::chrono::milliseconds(static_cast<int64_t>(1000 * shared_.options.grace_seconds)));
    grace_.async_wait([this](const ErrorCode& error) {
      if (error) return;
      for (Connection* const connection : connections()) connection->drop(503);
      shared_.io.stop();
    });
    for (Connection* const connection : connections()) connection->stop();
    stop_if_done();
  }

  std::vector<Connection*> connections() const { return {shared_.all.begin(), shared_.all.end()}; }

  void stop_if_done() {
    if (!shared_.stopping || !shared_.all.empty()) return;
    ErrorCode ignored;
    grace_.cancel(ignored);
  }

  Connections shared_;  // the first member: its io must outlive all others
  std::unique_ptr<Api> api_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_, grace_;
  asio::signal_set signals_;
};

}  // namespace

void run_server(Api::Models models, const ServerOptions& options,
                const std::function<void(const std::string& url)>& listening) {
  Server server(std::move(models), options);
  listening(server.url());
  server.run();
}

}  // namespace alibi::serve::network
