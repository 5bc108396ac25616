// A connection of the server: it reads requests one after the other and writes their answers.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "serve/network/log_writer.h"
#include "serve/network/request_parser.h"
#include "serve/network/server.h"

namespace alibi::serve::network {

class Connection;

/// What all connections share. Everything runs on the thread of `io`, except what Exchange posts to it.
struct Connections {
  const ServerOptions& options;
  LogWriter& writer;
  std::set<Connection*> all = {};
  bool stopping = false;
  std::function<void()> ended = {};  ///< called after each connection's end
  Api* api = nullptr;
  std::atomic<bool> has_lost_answers = false;  ///< io was stopped so that Connection::fail_lost() is called
  boost::asio::io_context io{1};

  void log(const OrderedJson& line) const;
  /// Logs an exception that belongs to no request.
  void log_failure(const std::exception_ptr& why) const noexcept;
};

/// Clocks count nanoseconds in 64 bits, so a time that means "never" is cut to 30 years.
std::chrono::milliseconds duration_of(double seconds);

/// One request and its answer. The endpoints hold it as a Responder.
class Exchange : public Responder, public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(Connections& shared, std::weak_ptr<Connection> connection, std::string method_in, std::string path_in)
      : method(std::move(method_in)), path(std::move(path_in)), shared_(shared), connection_(std::move(connection)) {}

  void reply(Reply reply) override;
  void begin_events() override;
  void event(std::string_view data) override;
  void end_events(std::string_view last) override;
  void fail(const std::exception_ptr& why) noexcept override;
  void on_cancel(std::function<void()> cancel) override;
  void note(const std::string& key, OrderedJson value) override;

  /// Nobody waits for the answer any more.
  void cancel() noexcept;
  OrderedJson notes();
  /// What fail() received and could not post, because there was no memory; or null.
  std::exception_ptr lost_failure();

  const std::string method, path;
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

 private:
  /// Calls use(connection, this exchange) on the thread of the connections.
  template <class Use>
  void post(Use use);

  Connections& shared_;
  const std::weak_ptr<Connection> connection_;
  std::mutex mutex_;
  bool cancelled_ = false;
  std::function<void()> cancel_;
  OrderedJson notes_ = OrderedJson::object();
  std::exception_ptr lost_failure_;
};

/// Every function that io calls for a connection runs inside run(): an exception ends the request with an error reply,
/// or closes the connection, and the server continues.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  Connection(Socket socket, Connections& shared);
  ~Connection();

  template <class Work>
  void run(const Work& work) noexcept {
    try {
      work();
    } catch (...) {
      fail(std::current_exception());
    }
  }

  void start();
  /// Answers with status 503 and closes.
  void refuse();
  /// Closes after the answer to the request that runs, or now.
  void stop() noexcept;
  /// Closes now.
  void drop(int logged_status) noexcept;
  /// Answers if the failure of the request that runs could not be posted.
  void fail_lost() noexcept;

  // Called through the exchange; others than the current one are ignored.
  void reply(const Exchange* exchange, const Reply& reply);
  void begin_events(const Exchange* exchange);
  void event(const Exchange* exchange, const std::string& data);
  std::string bytes_of_event(const std::string& data) const;
  void end_events(const Exchange* exchange, const std::string& last);
  void fail_exchange(const Exchange* exchange, const std::exception_ptr& why);

 private:
  using Error = boost::system::error_code;

  /// What io calls. It keeps the connection alive, and does nothing after the connection was closed.
  template <class Handle>
  auto handler(Handle handle) {
    return [self = shared_from_this(), handle = std::move(handle)](const auto&... arguments) {
      if (!self->is_closed_) self->run([&] { handle(arguments...); });
    };
  }

  /// Answers the request that runs or arrives, if no answer has begun, and closes.
  void fail(const std::exception_ptr& why) noexcept;
  /// Calls `late` after this time, unless the timer is set again before.
  void arm(boost::asio::steady_timer& timer, double seconds, std::function<void()> late);
  void wait_to_read();
  void receive(Error error);
  void parse();
  void handle();
  /// Answers a request that did not arrive as a whole, and closes.
  void refuse_request(const ApiError& error);
  void answer_and_close(const std::exception_ptr& why);
  void probe(const std::shared_ptr<Exchange>& exchange);
  std::string head(int status, const Reply* reply) const;
  void write(std::string bytes);
  void write_next();
  void answered() noexcept;
  /// Ends the sending side and discards what the client still sends, so that it can read the answer.
  void linger();
  void close() noexcept;

  Socket socket_;
  Connections& shared_;
  std::string remote_;
  boost::asio::steady_timer timer_, write_timer_, probe_timer_;
  boost::beast::flat_buffer buffer_;                // received and not parsed: at most max_header_bytes
  std::optional<RequestParser> parser_;             // while a request arrives
  bool waits_to_read_ = false, has_ended_ = false;  // has_ended_: the client sends nothing more
  bool keeps_alive_ = false, is_http_1_0_ = false;

  std::shared_ptr<Exchange> current_;  // null between requests
  int status_ = 0;                     // of the answer; 0 before it begins
  bool streams_ = false, complete_ = false, lingers_ = false, is_closed_ = false;
  std::deque<std::string> unsent_;
  size_t unsent_bytes_ = 0, sent_bytes_ = 0, drained_ = 0;
};

}  // namespace alibi::serve::network
