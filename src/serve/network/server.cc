#include "serve/network/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <thread>
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
      : shared_{.options = options, .writer = writer_},
        acceptor_(shared_.io),
        retry_(shared_.io),
        grace_(shared_.io),
        signals_(shared_.io) {
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
      if (error) return;
      must_stop_ = true;
      stop();
    });
    // What belongs to no connection throws out of io.run(), is done again here.
    bool goes_on = true;
    while (goes_on) {
      try {
        if (must_stop_ && !has_stopped_) stop();
        if (!accepts_ && !must_stop_) accept();
        shared_.io.run();
        shared_.io.restart();
        goes_on = !is_over_ && shared_.has_lost_answers.exchange(false);
        for (auto at = shared_.all.begin(); goes_on && at != shared_.all.end();) (*at++)->fail_lost();
      } catch (...) {
        shared_.log_failure(std::current_exception());
        std::this_thread::sleep_for(std::chrono::milliseconds(10));  // until there is memory, for example
      }
    }
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
      accepts_ = false;
      if (must_stop_) return;
      step("accept");
      if (error) {  // no file descriptor is free, for example
        retry_.expires_after(std::chrono::milliseconds(100));
        retry_.async_wait([this](const ErrorCode& cancelled) {
          accepts_ = false;
          if (!cancelled && !must_stop_) accept();
        });
        accepts_ = true;
        return;
      }
      const size_t count = shared_.all.size();
      const auto most = static_cast<size_t>(shared_.options.max_connections);
      if (count / 2 < most) {  // those beyond the limit get an error
        const auto connection = std::make_shared<Connection>(std::move(socket), shared_);
        connection->run([&] { count < most ? connection->start() : connection->refuse(); });
      }
      accept();
    });
    accepts_ = true;
  }

  /// Takes no further requests, and ends when those that run have been answered. It may be called again after it threw.
  void stop() {
    step("stop");
    shared_.stopping = true;
    api_->close();
    ErrorCode ignored;
    acceptor_.close(ignored);
    retry_.cancel(ignored);
    signals_.clear(ignored);  // the next signal ends the process
    std::signal(SIGTERM, SIG_DFL);
    std::signal(SIGINT, SIG_DFL);
    grace_.expires_after(duration_of(shared_.options.grace_seconds));
    grace_.async_wait([this](const ErrorCode& error) {
      if (error) return;
      is_over_ = true;
      for (auto at = shared_.all.begin(); at != shared_.all.end();) (*at++)->drop(503);
      shared_.io.stop();
    });
    has_stopped_ = true;
    const size_t connections = shared_.all.size();
    for (auto at = shared_.all.begin(); at != shared_.all.end();) (*at++)->stop();
    stop_if_done();
    shared_.log({{"event", "stopping"}, {"connections", connections}});
  }

  void stop_if_done() {
    if (!shared_.stopping || !shared_.all.empty()) return;
    ErrorCode ignored;
    grace_.cancel(ignored);
  }

  LogWriter writer_{STDERR_FILENO};
  Connections shared_;  // its io must outlive the members below
  std::unique_ptr<Api> api_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_, grace_;
  asio::signal_set signals_;
  bool accepts_ = false;  // a connection or the next attempt is being waited for
  bool must_stop_ = false, has_stopped_ = false, is_over_ = false;
};

}  // namespace

void run_server(Api::Models models, const ServerOptions& options,
                const std::function<void(const std::string& url)>& listening) {
  Server server(std::move(models), options);
  listening(server.url());
  server.run();
}

}  // namespace alibi::serve::network
