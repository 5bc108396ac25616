// A connection of the server: it reads requests one after the other and writes their answers.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "serve/network/server.h"

namespace alibi::serve::network {

class Connection;

/// What all connections share. Everything runs on the thread of `io`, except what Exchange posts to it.
struct Connections {
  const ServerOptions& options;
  std::set<Connection*> all = {};
  bool stopping = false;
  std::function<void()> ended = {};  ///< called after each connection's end
  Api* api = nullptr;
  boost::asio::io_context io{1};

  void log(const OrderedJson& line) const;
};

/// One request and its answer. The endpoints hold it as a Responder.
class Exchange : public Responder, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(boost::asio::io_context& io, std::weak_ptr<Connection> connection, std::string method_in,
           std::string path_in)
      : method(std::move(method_in)), path(std::move(path_in)), io_(io), connection_(std::move(connection)) {}

  void reply(Reply reply) override;
  void begin_events() override;
  void event(std::string_view data) override;
  void end_events() override;
  void on_cancel(std::function<void()> cancel) override;
  void note(const std::string& key, OrderedJson value) override;

  /// Nobody waits for the answer any more.
  void cancel();
  OrderedJson notes();

  const std::string method, path;
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

 private:
  /// Calls use(connection, this exchange) on the thread of the connections.
  template <class Use>
  void post(Use use);

  boost::asio::io_context& io_;
  const std::weak_ptr<Connection> connection_;
  std::mutex mutex_;
  bool cancelled_ = false;
  std::function<void()> cancel_;
  OrderedJson notes_ = OrderedJson::object();
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  Connection(Socket socket, Connections& shared);
  ~Connection();

  void start();
  /// Answers with status 503 and closes.
  void refuse();
  /// Closes after the answer to the request that runs, or now.
  void stop();
  /// Closes now.
  void drop(int logged_status);

  // Called through the exchange; others than the current one are ignored.
  void reply(const Exchange* exchange, const Reply& reply);
  void begin_events(const Exchange* exchange);
  void event(const Exchange* exchange, const std::string& data);
  void end_events(const Exchange* exchange);

 private:
  using Error = boost::system::error_code;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  /// Calls `late` after this time, unless the timer is set again before.
  void arm(boost::asio::steady_timer& timer, double seconds, std::function<void()> late);
  void wait_for_request();
  void read_header();
  void read_body();
  void handle();
  /// Answers a request that could not be read, and closes.
  void refuse_request(const Error& error);
  void answer_and_close(const ApiError& error);
  void watch(const std::shared_ptr<Exchange>& exchange);
  void probe(const std::shared_ptr<Exchange>& exchange);
  std::string head(int status, const Reply* reply) const;
  void write(std::string bytes);
  void write_next();
  void answered();
  /// Ends the sending side and discards what the client still sends, so that it can read the answer.
  void linger();
  void drain();
  void close();

  Socket socket_;
  Connections& shared_;
  std::string remote_;
  boost::asio::steady_timer timer_, write_timer_, probe_timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  bool timed_out_ = false, keeps_alive_ = false, is_http_1_0_ = false, half_closed_ = false;

  std::shared_ptr<Exchange> current_;  // null between requests
  int status_ = 0;                     // of the answer; 0 before it begins
  bool streams_ = false, complete_ = false, is_closing_ = false;
  std::deque<std::string> unsent_;
  size_t unsent_bytes_ = 0, sent_bytes_ = 0, drained_ = 0;
  std::array<char, 4096> discarded_;
};

}  // namespace alibi::serve::network
